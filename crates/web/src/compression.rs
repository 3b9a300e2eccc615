//! Compresses responses, except small ones, those that are compressed already, and event streams, whose events would wait in the
//! compressor.

use http::{Response, header};
use tower_http::compression::CompressionLayer;
use tower_http::compression::predicate::{And, Predicate, SizeAbove};

const MIN_SIZE: u64 = 512;

/// Content types that are worth compressing.
#[derive(Debug, Clone, Copy)]
pub(crate) struct IsText;

impl Predicate for IsText {
    fn should_compress<B: axum::body::HttpBody>(&self, response: &Response<B>) -> bool {
        let value = response.headers().get(header::CONTENT_TYPE);
        let value = value.and_then(|value| value.to_str().ok()).unwrap_or("");
        let essence = value.split(';').next().unwrap_or_default().trim();
        match essence {
            "text/event-stream" => false,
            "application/json" | "application/javascript" | "application/xml" => true,
            "application/x-ndjson" => false,
            "image/svg+xml" => true,
            other => other.starts_with("text/") || other.ends_with("+json"),
        }
    }
}

pub(crate) fn layer() -> CompressionLayer<And<SizeAbove, IsText>> {
    CompressionLayer::new().compress_when(SizeAbove::new(MIN_SIZE).and(IsText))
}
