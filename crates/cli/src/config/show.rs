//! The effective configuration, for people and for machines: secrets hidden, with the origin of each value.

use std::fmt::Write;

use serde_json::json;
use toml::Value;

use super::{Effective, secrets};

/// A TOML file that says where each value came from.
pub fn as_toml(effective: &Effective) -> String {
    let mut out = String::new();
    let mut section = "";
    for (key, setting) in &effective.settings {
        let (table, name) = key.rsplit_once('.').unwrap_or(("", key));
        if table != section {
            let _ = writeln!(out, "\n[{table}]");
            section = table;
        }
        let line = format!("{name} = {}", shown(key, &setting.value));
        let _ = writeln!(out, "{line:<48} # {}", setting.origin);
    }
    out
}

/// One object: key → value and origin.
pub fn as_json(effective: &Effective) -> serde_json::Value {
    effective
        .settings
        .iter()
        .map(|(key, setting)| {
            let value = serde_json::to_value(shown(key, &setting.value)).unwrap_or_default();
            (
                key.clone(),
                json!({ "value": value, "origin": setting.origin.to_string() }),
            )
        })
        .collect::<serde_json::Map<_, _>>()
        .into()
}

/// The settings of [`as_json`], such as a running server's, as TOML: a line per key.
pub fn json_as_toml(settings: &serde_json::Value) -> Option<String> {
    let mut out = String::new();
    for (key, setting) in settings.as_object()? {
        let value = Value::try_from(&setting["value"]).ok()?;
        let line = format!("{key} = {value}");
        let _ = writeln!(out, "{line:<48} # {}", setting["origin"].as_str()?);
    }
    Some(out)
}

/// The value as it may be shown. In a list of tokens, names and scopes are no secret.
fn shown(key: &str, value: &Value) -> Value {
    match value {
        Value::String(text) if text.is_empty() => value.clone(),
        Value::Array(items) if secrets::is_secret(key) => Value::Array(
            items
                .iter()
                .map(|item| match item {
                    Value::Table(fields) => Value::Table(
                        fields
                            .iter()
                            .map(|(name, field)| {
                                let open = matches!(name.as_str(), "name" | "scopes");
                                (
                                    name.clone(),
                                    if open {
                                        field.clone()
                                    } else {
                                        secrets::HIDDEN.into()
                                    },
                                )
                            })
                            .collect(),
                    ),
                    _ => secrets::HIDDEN.into(),
                })
                .collect(),
        ),
        _ if secrets::is_secret(key) => secrets::HIDDEN.into(),
        Value::String(text) => secrets::redact(text).into(),
        other => other.clone(),
    }
}
