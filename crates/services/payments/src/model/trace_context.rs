//! The W3C trace context of a payment's client: carried to the wallet and back, never a reason to reject a request.

use axum::http::HeaderMap;
use serde::Deserialize;

/// The header that names the trace.
pub const PARENT: &str = "traceparent";

/// The header with vendor-specific trace data.
pub const STATE: &str = "tracestate";

/// W3C allows dropping a longer `tracestate`.
const MAX_STATE: usize = 512;

/// Both headers, passed on unchanged: this program adds no span of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceContext {
    parent: Box<str>,
    state: Option<Box<str>>,
}

/// The part of a message's headers that matters here.
#[derive(Deserialize)]
struct MessageHeaders {
    #[serde(default)]
    tracestate: Option<String>,
}

impl TraceContext {
    /// The context of an HTTP request; `None` if its `traceparent` is missing, repeated or invalid, as W3C requires.
    #[must_use]
    pub fn from_request(headers: &HeaderMap) -> Option<Self> {
        let mut parents = headers.get_all(PARENT).iter();
        let (Some(parent), None) = (parents.next(), parents.next()) else {
            return None;
        };
        let states = headers.get_all(STATE).iter().map(|state| state.to_str());
        let states: Result<Vec<&str>, _> = states.collect();
        let state = states.unwrap_or_default().join(",");
        Self::new(parent.to_str().ok()?, Some(&state))
    }

    /// The context of a message or an outbox row: its trace, and its headers as JSON text.
    #[must_use]
    pub fn from_message(trace: Option<&str>, headers: Option<&str>) -> Option<Self> {
        let trace = trace?;
        let headers = headers.and_then(|text| serde_json::from_str::<MessageHeaders>(text).ok());
        Self::new(
            trace,
            headers.and_then(|headers| headers.tracestate).as_deref(),
        )
    }

    fn new(parent: &str, state: Option<&str>) -> Option<Self> {
        let fits = |state: &&str| {
            let visible = |c: char| c == ' ' || c.is_ascii_graphic();
            (1..=MAX_STATE).contains(&state.len()) && state.chars().all(visible)
        };
        Some(Self {
            parent: parse_parent(parent.trim())?,
            state: state.map(str::trim).filter(fits).map(Into::into),
        })
    }

    /// Both headers of many contexts, to be bound as two arrays.
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

/// Normalises to version 00. Fields that later versions add are unknown and dropped, as W3C requires.
fn parse_parent(text: &str) -> Option<Box<str>> {
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

    fn from_headers(headers: &[(&'static str, &str)]) -> Option<TraceContext> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, HeaderValue::from_str(value).unwrap());
        }
        TraceContext::from_request(&map)
    }

    #[test]
    fn a_valid_trace_context_is_kept_unchanged() {
        let context = from_headers(&[(PARENT, TRACE), (STATE, "a=1"), (STATE, "b=2")]).unwrap();
        assert_eq!(
            (context.parent(), context.state()),
            (TRACE, Some("a=1,b=2"))
        );
        let headers = r#"{"tenant":"x","tracestate":"a=1"}"#;
        let context_of_message = TraceContext::from_message(Some(TRACE), Some(headers)).unwrap();
        assert_eq!(
            (context_of_message.parent(), context_of_message.state()),
            (TRACE, Some("a=1"))
        );
        let later = format!("cc{}-what-the-future-brings", &TRACE[2..]);
        assert_eq!(from_headers(&[(PARENT, &later)]).unwrap().parent(), TRACE);
    }

    #[test]
    fn an_invalid_trace_context_is_ignored() {
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
            assert_eq!(
                from_headers(&[(PARENT, bad), (STATE, "a=1")]),
                None,
                "{bad}"
            );
        }
        assert_eq!(from_headers(&[(PARENT, TRACE), (PARENT, TRACE)]), None);
        assert_eq!(from_headers(&[(STATE, "a=1")]), None);
    }

    #[test]
    fn an_invalid_tracestate_does_not_affect_the_trace() {
        let long = "a".repeat(MAX_STATE + 1);
        for bad in [long.as_str(), "a\tb", " "] {
            let context = from_headers(&[(PARENT, TRACE), (STATE, bad)]).unwrap();
            assert_eq!((context.parent(), context.state()), (TRACE, None));
        }
        let odd = TraceContext::from_message(Some(TRACE), Some(r#"{"tracestate":7}"#)).unwrap();
        assert_eq!(odd.state(), None);
    }
}
