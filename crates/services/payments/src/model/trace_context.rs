//! The W3C trace context of whoever asked for a payment: carried to the wallet and back, and never a reason to refuse.

use axum::http::HeaderMap;
use serde::Deserialize;

/// The header that names the trace.
pub const PARENT: &str = "traceparent";

/// The header with what tracing systems add for themselves.
pub const STATE: &str = "tracestate";

/// A longer `tracestate` may be dropped, says W3C.
const LONGEST_STATE: usize = 512;

/// Both headers as they go on, unchanged: this program adds no step of its own to a trace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceContext {
    parent: Box<str>,
    state: Option<Box<str>>,
}

/// Headers of a message, as far as they matter here.
#[derive(Deserialize)]
struct Carried {
    #[serde(default)]
    tracestate: Option<String>,
}

impl TraceContext {
    /// What a request brings; none if its `traceparent` is missing, repeated or no such thing, which W3C asks to ignore.
    #[must_use]
    pub fn of_request(headers: &HeaderMap) -> Option<Self> {
        let mut parents = headers.get_all(PARENT).iter();
        let (Some(parent), None) = (parents.next(), parents.next()) else {
            return None;
        };
        let states = headers.get_all(STATE).iter().map(|state| state.to_str());
        let states: Result<Vec<&str>, _> = states.collect();
        let state = states.unwrap_or_default().join(",");
        Self::new(parent.to_str().ok()?, Some(&state))
    }

    /// What a message or a row carries: its trace, and the text of its headers.
    #[must_use]
    pub fn carried(trace: Option<&str>, headers: Option<&str>) -> Option<Self> {
        let trace = trace?;
        let headers = headers.and_then(|text| serde_json::from_str::<Carried>(text).ok());
        Self::new(
            trace,
            headers.and_then(|carried| carried.tracestate).as_deref(),
        )
    }

    fn new(parent: &str, state: Option<&str>) -> Option<Self> {
        let fits = |state: &&str| {
            let visible = |c: char| c == ' ' || c.is_ascii_graphic();
            (1..=LONGEST_STATE).contains(&state.len()) && state.chars().all(visible)
        };
        Some(Self {
            parent: parsed(parent.trim())?,
            state: state.map(str::trim).filter(fits).map(Into::into),
        })
    }

    /// Both headers of many, to be bound as two arrays.
    pub fn columns<'t>(
        traces: impl Iterator<Item = Option<&'t Self>>,
    ) -> (Vec<Option<&'t str>>, Vec<Option<&'t str>>) {
        traces
            .map(|trace| (trace.map(Self::parent), trace.and_then(Self::state)))
            .unzip()
    }

    /// The value of `traceparent`.
    #[must_use]
    pub fn parent(&self) -> &str {
        &self.parent
    }

    /// The value of `tracestate`.
    #[must_use]
    pub fn state(&self) -> Option<&str> {
        self.state.as_deref()
    }
}

/// As version 00 says it. What later versions add is unknown and goes no further, which W3C asks for, too.
fn parsed(text: &str) -> Option<Box<str>> {
    let hex = |part: &str, length: usize| {
        let lower = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        part.len() == length && part.bytes().all(lower)
    };
    let names = |part: &str, length| hex(part, length) && part.bytes().any(|byte| byte != b'0');
    let mut parts = text.splitn(5, '-');
    let (version, trace, parent, flags) =
        (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let more = parts.next().is_some();
    if !hex(version, 2) || version == "ff" || (version == "00" && more) {
        return None;
    }
    if !names(trace, 32) || !names(parent, 16) || !hex(flags, 2) {
        return None;
    }
    Some(format!("00-{trace}-{parent}-{flags}").into())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use axum::http::HeaderValue;

    use super::*;

    const TRACE: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    fn asked(headers: &[(&'static str, &str)]) -> Option<TraceContext> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, HeaderValue::from_str(value).unwrap());
        }
        TraceContext::of_request(&map)
    }

    #[test]
    fn a_trace_is_taken_as_it_is() {
        let context = asked(&[(PARENT, TRACE), (STATE, "a=1"), (STATE, "b=2")]).unwrap();
        assert_eq!(
            (context.parent(), context.state()),
            (TRACE, Some("a=1,b=2"))
        );
        let headers = r#"{"tenant":"x","tracestate":"a=1"}"#;
        let carried = TraceContext::carried(Some(TRACE), Some(headers)).unwrap();
        assert_eq!((carried.parent(), carried.state()), (TRACE, Some("a=1")));
        let later = format!("cc{}-what-the-future-brings", &TRACE[2..]);
        assert_eq!(asked(&[(PARENT, &later)]).unwrap().parent(), TRACE);
    }

    #[test]
    fn what_is_no_trace_is_ignored() {
        let zeros = "00-00000000000000000000000000000000-b7ad6b7169203331-01";
        let no_parent = "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01";
        let upper = TRACE.to_uppercase();
        let future = TRACE.replacen("00", "ff", 1);
        let longer = format!("{TRACE}-more");
        for bad in [
            "",
            "x",
            zeros,
            no_parent,
            &upper,
            &future,
            &longer,
            &TRACE[..54],
        ] {
            assert_eq!(asked(&[(PARENT, bad), (STATE, "a=1")]), None, "{bad}");
        }
        assert_eq!(asked(&[(PARENT, TRACE), (PARENT, TRACE)]), None);
        assert_eq!(asked(&[(STATE, "a=1")]), None);
    }

    #[test]
    fn a_state_that_is_too_long_or_unreadable_leaves_the_trace() {
        let long = "a".repeat(LONGEST_STATE + 1);
        for bad in [long.as_str(), "a\tb", " "] {
            let context = asked(&[(PARENT, TRACE), (STATE, bad)]).unwrap();
            assert_eq!((context.parent(), context.state()), (TRACE, None));
        }
        let odd = TraceContext::carried(Some(TRACE), Some(r#"{"tracestate":7}"#)).unwrap();
        assert_eq!(odd.state(), None);
    }
}
