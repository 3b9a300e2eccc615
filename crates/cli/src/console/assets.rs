//! Style sheet, script and icon: compiled in, and cached by browsers until the program changes.

use std::sync::LazyLock;

use axum::{
    Router,
    http::{StatusCode, header},
    response::IntoResponse,
    routing::get,
};

const STYLE: &str = include_str!("../../assets/console.css");
const SCRIPT: &str = include_str!("../../assets/console.js");
const ICON: &str = include_str!("../../assets/icon.svg");

/// Pages request the assets by version, so the cache lifetime can be long.
const KEPT: &str = "public, max-age=86400";

/// Changes whenever an asset does.
pub(super) fn stamp() -> &'static str {
    static STAMP: LazyLock<String> = LazyLock::new(|| {
        use std::hash::{DefaultHasher, Hash, Hasher};
        let mut hasher = DefaultHasher::new();
        (STYLE, SCRIPT).hash(&mut hasher);
        format!("{:08x}", hasher.finish() & 0xffff_ffff)
    });
    &STAMP
}

pub(super) fn routes() -> Router {
    let asset = |kind: &'static str, text: &'static str| {
        get(move || async move {
            let headers = [(header::CONTENT_TYPE, kind), (header::CACHE_CONTROL, KEPT)];
            (headers, text).into_response()
        })
    };
    Router::new()
        .route(
            "/assets/console.css",
            asset("text/css; charset=utf-8", STYLE),
        )
        .route(
            "/assets/console.js",
            asset("text/javascript; charset=utf-8", SCRIPT),
        )
        .route("/assets/icon.svg", asset("image/svg+xml", ICON))
        // Browsers request it on their own; the pages use another.
        .route("/favicon.ico", get(|| async { StatusCode::NO_CONTENT }))
}
