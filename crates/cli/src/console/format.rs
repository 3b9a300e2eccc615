//! Numbers, times, addresses and texts as people read them.

use crate::operate::overview::Amount;
pub(super) use postrider_web::text::count;
use serde_json::Value;
use time::{OffsetDateTime, format_description::well_known::Rfc3339, macros::format_description};

/// A count that may have stopped early.
pub(super) fn amount(amount: Amount) -> String {
    let more = if amount.more { "+" } else { "" };
    format!("{}{more}", count(amount.count))
}

/// A rate, exact where it is small.
pub(super) fn rate(rate: f64) -> String {
    if rate < 10.0 && rate.fract() > 0.0 {
        format!("{rate:.1}")
    } else {
        count(rate.round() as i64)
    }
}

/// Seconds in a suitable unit, rounded down.
pub(super) fn span(seconds: f64) -> String {
    let seconds = seconds.max(0.0);
    let whole = |number: f64| count(number.floor() as i64);
    if seconds < 1.0 {
        return format!("{} ms", whole(seconds * 1000.0));
    }
    let (size, unit) = match seconds {
        s if s < 120.0 => (1.0, "s"),
        s if s < 7_200.0 => (60.0, "min"),
        s if s < 172_800.0 => (3_600.0, "h"),
        _ => (86_400.0, "days"),
    };
    format!("{} {unit}", whole(seconds / size))
}

/// How long ago something was.
pub(super) fn ago(at: OffsetDateTime) -> String {
    let seconds = (OffsetDateTime::now_utc() - at).as_seconds_f64();
    if seconds < 1.0 {
        "now".to_owned()
    } else {
        format!("{} ago", span(seconds))
    }
}

/// A time to the second, in UTC.
pub(super) fn moment(at: OffsetDateTime) -> String {
    let format = format_description!("[year]-[month]-[day] [hour]:[minute]:[second] UTC");
    at.to_offset(time::UtcOffset::UTC)
        .format(&format)
        .unwrap_or_default()
}

/// A time as machines read it.
pub(super) fn machine(at: OffsetDateTime) -> String {
    at.format(&Rfc3339).unwrap_or_default()
}

/// Text with `code` in backticks as HTML, everything else escaped.
pub(super) fn rich(text: &str) -> String {
    let mut html = String::with_capacity(text.len());
    let parts: Vec<&str> = text.split('`').collect();
    // Only complete pairs are code.
    let last_pair = (parts.len() - 1) / 2 * 2;
    for (index, part) in parts.iter().enumerate() {
        match index {
            i if i % 2 == 1 && i < last_pair => html.push_str("<code>"),
            i if i > 0 && i % 2 == 0 && i <= last_pair => html.push_str("</code>"),
            i if i > last_pair => html.push('`'),
            _ => {}
        }
        for character in part.chars() {
            match character {
                '<' => html.push_str("&lt;"),
                '>' => html.push_str("&gt;"),
                '&' => html.push_str("&amp;"),
                '"' => html.push_str("&quot;"),
                other => html.push(other),
            }
        }
    }
    html
}

/// JSON as names and values: nested names are joined with dots.
pub(super) fn fields(value: &Value) -> Vec<(String, String)> {
    let mut found = Vec::new();
    flatten(String::new(), value, &mut found);
    found
}

fn flatten(name: String, value: &Value, found: &mut Vec<(String, String)>) {
    let below = |key: &str| match name.as_str() {
        "" => key.to_owned(),
        name => format!("{name}.{key}"),
    };
    match value {
        Value::Object(object) if !object.is_empty() => {
            for (key, value) in object {
                flatten(below(key), value, found);
            }
        }
        Value::Array(items) if items.iter().any(|item| item.is_object() || item.is_array()) => {
            for (index, value) in items.iter().enumerate() {
                flatten(below(&(index + 1).to_string()), value, found);
            }
        }
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(scalar).collect();
            found.push((name, items.join(", ")));
        }
        other => found.push((name, scalar(other))),
    }
}

fn scalar(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => "–".to_owned(),
        Value::Object(_) => "empty".to_owned(),
        other => other.to_string(),
    }
}

/// A text of an event: JSON as `name: value` pairs, anything else as it is.
pub(super) fn detail(text: String) -> String {
    match serde_json::from_str::<Value>(&text) {
        Ok(value @ (Value::Object(_) | Value::Array(_))) => {
            let pairs = fields(&value).into_iter().map(|(name, value)| {
                if name.is_empty() {
                    value
                } else {
                    format!("{name}: {value}")
                }
            });
            pairs.collect::<Vec<_>>().join(", ")
        }
        _ => text,
    }
}

/// A value in a query string.
pub(super) fn in_query(value: &str) -> String {
    url::form_urlencoded::byte_serialize(value.as_bytes()).collect()
}

/// A value as one segment of a path.
pub(super) fn in_path(value: &str) -> String {
    in_query(value).replace('+', "%20")
}

/// A point in time, as templates show it.
pub(super) struct When {
    /// How long ago.
    pub ago: String,
    /// When exactly.
    pub exact: String,
    /// For machines.
    pub machine: String,
}

impl From<OffsetDateTime> for When {
    fn from(at: OffsetDateTime) -> Self {
        Self {
            ago: ago(at),
            exact: moment(at),
            machine: machine(at),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_use_a_suitable_unit() {
        for (seconds, text) in [
            (0.0, "0 ms"),
            (0.25, "250 ms"),
            (1.9, "1 s"),
            (119.9, "119 s"),
            (120.0, "2 min"),
            (7_200.0, "2 h"),
            (172_800.0, "2 days"),
            (-5.0, "0 ms"),
        ] {
            assert_eq!(span(seconds), text);
        }
    }

    #[test]
    fn backticks_become_code_and_everything_else_is_escaped() {
        assert_eq!(
            rich("run `a <b>` & wait"),
            "run <code>a &lt;b&gt;</code> &amp; wait"
        );
        assert_eq!(rich("`a` and `b`"), "<code>a</code> and <code>b</code>");
        assert_eq!(rich("one ` alone"), "one ` alone");
        assert_eq!(rich("<script>"), "&lt;script&gt;");
    }

    #[test]
    fn json_is_shown_as_names_and_values() {
        let json = r#"{"reason_code":"CANCELLED","order":{"side":"buy","tags":["a","b"]},"lines":[{"n":1}]}"#;
        assert_eq!(
            detail(json.to_owned()),
            "lines.1.n: 1, order.side: buy, order.tags: a, b, reason_code: CANCELLED"
        );
        assert_eq!(detail("12 of 13".to_owned()), "12 of 13");
    }

    #[test]
    fn any_id_is_one_path_segment() {
        assert_eq!(in_path("a b/c?d#é+"), "a%20b%2Fc%3Fd%23%C3%A9%2B");
    }
}
