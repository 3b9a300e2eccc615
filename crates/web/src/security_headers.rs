//! Security headers. Headers that a handler has set stay.

use http::{HeaderMap, HeaderName, HeaderValue, header};

/// For pages: everything from this server, nothing inline, no frames.
pub(crate) const PAGE_POLICY: &str = "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'";
/// For everything else: it's data, so nothing may run or load from it.
const DATA_POLICY: &str = "default-src 'none'; frame-ancestors 'none'";

const ALWAYS: [(HeaderName, &str); 4] = [
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "same-origin"),
    (header::X_FRAME_OPTIONS, "DENY"),
    // Responses contain customers' data: a handler that allows caching says so.
    (header::CACHE_CONTROL, "no-store"),
];

const RESOURCE_POLICY: HeaderName = HeaderName::from_static("cross-origin-resource-policy");

pub(crate) fn add(headers: &mut HeaderMap) {
    let content_type = headers.get(header::CONTENT_TYPE);
    let is_page = content_type.is_some_and(|value| value.as_bytes().starts_with(b"text/html"));
    let policy = if is_page { PAGE_POLICY } else { DATA_POLICY };
    let further = [
        (header::CONTENT_SECURITY_POLICY, policy),
        (RESOURCE_POLICY, "same-origin"),
    ];
    headers.reserve(ALWAYS.len() + further.len());
    for (name, value) in ALWAYS.into_iter().chain(further) {
        headers
            .entry(name)
            .or_insert(HeaderValue::from_static(value));
    }
}
