//! The layers, lowest first: compiled-in defaults, file, environment, flags.

use std::{
    collections::BTreeMap,
    fmt,
    path::{Path, PathBuf},
};

use serde::Deserialize;
use toml::{Table, Value};

use super::{Config, DEFAULTS, keys, secrets};

/// Prefix of our environment variables.
const PREFIX: &str = "POSTRIDER_";

/// Our variables that are not configuration keys: for the CLI client and for tests.
const NON_CONFIG_VARIABLES: [&str; 5] = [
    "POSTRIDER_CONFIG",
    "POSTRIDER_SERVER",
    "POSTRIDER_TOKEN",
    "POSTRIDER_CRASH",
    "POSTRIDER_MODEL",
];

/// Where a value came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// The compiled-in default.
    Default,
    /// A configuration file.
    File(PathBuf),
    /// An environment variable.
    Env(String),
    /// A flag of the command line.
    Flag(String),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File(path) => write!(f, "file {}", path.display()),
            Self::Env(name) => write!(f, "env {name}"),
            Self::Flag(name) => write!(f, "flag {name}"),
        }
    }
}

/// Overrides from the command line.
#[derive(Debug, Default, Clone)]
pub struct Overrides {
    /// A configuration file.
    pub file: Option<PathBuf>,
    /// Values given as flags: flag, key, text.
    pub flags: Vec<(String, String, String)>,
}

/// A problem, where it came from, and what to do.
#[derive(Debug, Clone)]
pub struct Problem {
    /// Key or file.
    pub subject: String,
    /// Where it came from.
    pub origin: Origin,
    /// What is wrong and what to do.
    pub what: String,
}

/// All problems of a configuration.
#[derive(Debug, thiserror::Error)]
pub struct Invalid(
    /// At least one.
    pub Vec<Problem>,
);

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.0.len();
        write!(
            f,
            "the configuration has {count} problem{}:",
            if count == 1 { "" } else { "s" }
        )?;
        for problem in &self.0 {
            write!(
                f,
                "\n  {} ({}): {}",
                problem.subject, problem.origin, problem.what
            )?;
        }
        Ok(())
    }
}

/// An effective value and where it came from.
#[derive(Debug, Clone)]
pub struct Setting {
    pub(super) value: Value,
    /// Where it came from.
    pub origin: Origin,
}

/// The effective configuration.
#[derive(Debug, Clone)]
pub struct Effective {
    /// Typed, validated.
    pub config: Config,
    /// Key by key, in the order of `config/default.toml`.
    pub settings: Vec<(String, Setting)>,
}

/// Merges the layers and validates everything before anything is used.
pub fn load(
    overrides: &Overrides,
    env: impl Iterator<Item = (String, String)>,
) -> Result<Effective, Invalid> {
    let mut layers = Layers::defaults()?;
    if let Some(path) = &overrides.file {
        layers.file(path);
    }
    layers.env(env);
    for (flag, key, text) in &overrides.flags {
        layers.text(Origin::Flag(flag.clone()), key, text);
    }
    layers.finish()
}

struct Layers {
    defaults: Table,
    order: Vec<String>,
    settings: BTreeMap<String, Setting>,
    problems: Vec<Problem>,
}

impl Layers {
    fn defaults() -> Result<Self, Invalid> {
        let defaults: Table = DEFAULTS.parse().map_err(|e: toml::de::Error| {
            let what = format!("the compiled-in defaults can't be read: {e}");
            Invalid(vec![Problem {
                subject: "config/default.toml".into(),
                origin: Origin::Default,
                what,
            }])
        })?;
        let flat = keys::flatten(&defaults);
        let order = flat.iter().map(|(key, _)| key.clone()).collect();
        let settings = flat
            .into_iter()
            .map(|(key, value)| {
                (
                    key,
                    Setting {
                        value,
                        origin: Origin::Default,
                    },
                )
            })
            .collect();
        Ok(Self {
            defaults,
            order,
            settings,
            problems: Vec::new(),
        })
    }

    fn file(&mut self, path: &Path) {
        let origin = Origin::File(path.to_owned());
        let mut problem = |what: String| {
            self.problems.push(Problem {
                subject: path.display().to_string(),
                origin: origin.clone(),
                what,
            });
        };
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(e) => return problem(format!("can't be read: {e}")),
        };
        let table: Table = match text.parse() {
            Ok(table) => table,
            // toml's own message quotes the line, which may contain a secret: report only the position.
            Err(e) => return problem(not_toml(&text, &e)),
        };
        for (key, value) in keys::flatten(&table) {
            self.set(origin.clone(), &key, value);
        }
    }

    fn env(&mut self, env: impl Iterator<Item = (String, String)>) {
        let mut ours: Vec<_> = env.filter(|(name, _)| name.starts_with(PREFIX)).collect();
        ours.sort();
        for (name, text) in ours {
            if NON_CONFIG_VARIABLES.contains(&name.as_str()) || name.starts_with("POSTRIDER_TEST_")
            {
                continue;
            }
            let key = name[PREFIX.len()..].to_ascii_lowercase().replace("__", ".");
            self.text(Origin::Env(name), &key, &text);
        }
    }

    /// A value given as text: TOML if it parses as the type of the key, else the text itself.
    fn text(&mut self, origin: Origin, key: &str, text: &str) {
        let wants_text = self
            .settings
            .get(&keys_of(key))
            .is_some_and(|setting| setting.value.is_str());
        let parsed = format!("v = {text}")
            .parse::<Table>()
            .ok()
            .and_then(|mut t| t.remove("v"));
        let value = match parsed {
            Some(value) if value.is_str() || !wants_text => value,
            _ => Value::String(text.to_owned()),
        };
        self.set(origin, key, value);
    }

    fn set(&mut self, origin: Origin, key: &str, value: Value) {
        let key = keys_of(key);
        if let Some(setting) = self.settings.get_mut(&key) {
            *setting = Setting { value, origin };
            return;
        }
        let section = format!("{key}.");
        let what = if self.order.iter().any(|known| known.starts_with(&section)) {
            format!("is a section, not a key; its keys start with {section}")
        } else {
            match keys::nearest(&key, self.order.iter().map(String::as_str)) {
                Some(meant) => format!("no such key; did you mean {meant}?"),
                None => "no such key; `postrider config` lists all of them".into(),
            }
        };
        self.problems.push(Problem {
            subject: key,
            origin,
            what,
        });
    }

    fn finish(mut self) -> Result<Effective, Invalid> {
        // Try each value alone on top of the defaults, so that every invalid one is reported,
        // not only the first.
        for key in &self.order {
            let Some(setting) = self
                .settings
                .get(key)
                .filter(|s| s.origin != Origin::Default)
            else {
                continue;
            };
            let mut table = self.defaults.clone();
            keys::put(&mut table, key, setting.value.clone());
            if let Err(e) = Config::deserialize(table) {
                let what = hide(key, &setting.value, e.message());
                self.problems.push(Problem {
                    subject: key.clone(),
                    origin: setting.origin.clone(),
                    what,
                });
            }
        }
        if !self.problems.is_empty() {
            return Err(Invalid(self.problems));
        }
        let mut table = self.defaults.clone();
        for (key, setting) in &self.settings {
            keys::put(&mut table, key, setting.value.clone());
        }
        let config = Config::deserialize(table).map_err(|e| {
            let what = e.message().to_owned();
            Invalid(vec![Problem {
                subject: "configuration".into(),
                origin: Origin::Default,
                what,
            }])
        })?;
        let contradictions = config.contradictions();
        if !contradictions.is_empty() {
            let origin = |key| {
                self.settings
                    .get(key)
                    .map_or(Origin::Default, |s| s.origin.clone())
            };
            return Err(Invalid(
                contradictions
                    .into_iter()
                    .map(|(key, what)| Problem {
                        subject: key.into(),
                        origin: origin(key),
                        what,
                    })
                    .collect(),
            ));
        }
        let settings = self
            .order
            .into_iter()
            .filter_map(|key| self.settings.remove_entry(&key))
            .collect();
        Ok(Effective { config, settings })
    }
}

fn keys_of(key: &str) -> String {
    key.split('.')
        .map(keys::snake)
        .collect::<Vec<_>>()
        .join(".")
}

/// A deserializer's error quotes its input; a secret must not leak that way.
fn hide(key: &str, value: &Value, message: &str) -> String {
    match value.as_str() {
        Some(text) if secrets::is_secret(key) => message.replace(text, secrets::HIDDEN),
        Some(text) => message.replace(text, &secrets::redact(text)),
        None if secrets::is_secret(key) && message.contains("invalid type") => {
            "must be a list such as [{ name = \"ci\", sha256 = \"<64 hex digits>\", scopes = [\"submit\"] }]".into()
        }
        None => message.to_owned(),
    }
}

fn not_toml(text: &str, error: &toml::de::Error) -> String {
    let line = error.span().map_or(1, |span| {
        text[..span.start.min(text.len())].matches('\n').count() + 1
    });
    format!("line {line} is not valid TOML: {}", error.message())
}
