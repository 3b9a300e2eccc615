//! Protects a server without tokens on loopback from web pages in a local browser.
//!
//! Without tokens the only protection is that callers must be on this machine, but a browser on this machine runs pages from
//! everywhere. A page can make its own name resolve to 127.0.0.1 (DNS rebinding) or post across origins. The first shows in
//! `Host`, the second in `Origin` and `Sec-Fetch-Site`; a page can't make a browser omit or forge any of them.

use std::net::IpAddr;

use axum::extract::Request;
use http::uri::Authority;
use http::{HeaderMap, header};

use crate::error_code::codes;
use crate::problem::Problem;

/// Rejects requests from web pages of another origin. Applied only if no tokens are configured.
pub(crate) fn check(request: &Request) -> Result<(), Problem> {
    // Programs may omit Host; browsers can't.
    let hosts = request.headers().get_all(header::HOST);
    for host in hosts {
        let authority = host.to_str().ok().and_then(|host| host.parse().ok());
        if !authority.as_ref().is_some_and(is_loopback) {
            return Err(untrusted_host());
        }
    }
    let target = request.uri().authority();
    if target.is_some_and(|authority| !is_loopback(authority)) {
        return Err(untrusted_host());
    }
    if !request.method().is_safe() && is_cross_origin(request.headers()) {
        return Err(Problem::new(
            &codes::CROSS_ORIGIN,
            "A page of another origin sent this request. Without tokens only this server's own pages may change anything: configure tokens to call it from elsewhere.",
        ));
    }
    Ok(())
}

/// Whether an authority is this machine regardless of DNS: `localhost` (RFC 6761) or a loopback IP.
#[must_use]
pub fn is_loopback(authority: &Authority) -> bool {
    let host = authority.host().trim_end_matches('.').to_ascii_lowercase();
    let address = host.trim_start_matches('[').trim_end_matches(']');
    match address.parse::<IpAddr>() {
        Ok(ip) => ip.to_canonical().is_loopback(),
        Err(_) => host == "localhost" || host.ends_with(".localhost"),
    }
}

fn is_cross_origin(headers: &HeaderMap) -> bool {
    let site = headers.get("sec-fetch-site");
    if site.is_some_and(|site| site != "same-origin" && site != "none") {
        return true;
    }
    let Some(origin) = headers.get(header::ORIGIN) else {
        return false;
    };
    let host = headers.get(header::HOST).map(|host| host.as_bytes());
    // An opaque origin reads `null` and matches nothing.
    let authority = origin.as_bytes().strip_prefix(b"http://");
    authority.is_none() || authority != host
}

fn untrusted_host() -> Problem {
    Problem::new(
        &codes::UNTRUSTED_HOST,
        "Without tokens this server answers only to localhost and loopback addresses: use one of those in the URL, or configure tokens.",
    )
}
