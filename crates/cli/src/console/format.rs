//! Numbers, times and addresses as people read them.

use crate::operate::overview::Amount;
pub(super) use postrider_web::text::count;
use time::{OffsetDateTime, format_description::well_known::Rfc3339, macros::format_description};

/// A count that may have ended early.
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

/// Seconds in the unit that suits them, rounded down: nothing is older than it is said to be.
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
    fn spans_are_told_in_the_unit_that_suits_them() {
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
    fn an_id_of_any_characters_stays_one_segment_of_a_path() {
        assert_eq!(in_path("a b/c?d#é+"), "a%20b%2Fc%3Fd%23%C3%A9%2B");
    }
}
