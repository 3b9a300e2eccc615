//! Query and path parameters, parsed as strictly as JSON.
//!
//! Unknown parameters are rejected: a misspelled filter must not silently return everything.

use axum::extract::rejection::PathRejection;
use axum::extract::{FromRequestParts, RawPathParams};
use http::request::Parts;
use serde::de::DeserializeOwned;

use crate::error_code::codes;
use crate::json::shorten;
use crate::problem::Problem;

/// The query string as a struct; rejects repeated and unknown parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Query<T>(pub T);

/// The path parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Path<T>(pub T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Query<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        read_query(parts.uri.query().unwrap_or_default()).map(Self)
    }
}

/// Parses a query string (without the `?`).
///
/// # Errors
/// Names the unknown, repeated, missing or invalid parameters.
pub fn read_query<T: DeserializeOwned>(query: &str) -> Result<T, Problem> {
    for pair in query.split('&') {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        if let Err(reason) = decodes(name).and_then(|()| decodes(value)) {
            return Err(invalid_query(&[(shorten(name), reason.to_owned())]));
        }
    }
    let mut unknown = Vec::new();
    let mut track = serde_path_to_error::Track::new();
    let pairs = url::form_urlencoded::parse(query.as_bytes());
    let pairs = serde_urlencoded::Deserializer::new(pairs);
    let tracked = serde_path_to_error::Deserializer::new(pairs, &mut track);
    let value = serde_ignored::deserialize(tracked, |path| {
        let reason = "unknown parameter".to_owned();
        unknown.push((shorten(&path.to_string()), reason));
    });
    match value {
        Ok(value) if unknown.is_empty() => Ok(value),
        Ok(_) => Err(invalid_query(&unknown)),
        Err(error) => {
            let field = track.path().to_string();
            let field = if field == "." {
                String::new()
            } else {
                shorten(&field)
            };
            Err(invalid_query(&[(field, shorten(&error.to_string()))]))
        }
    }
}

fn invalid_query(errors: &[(String, String)]) -> Problem {
    let messages: Vec<String> = errors
        .iter()
        .map(|(field, reason)| match field.as_str() {
            "" => reason.clone(),
            field => format!("{reason} (`{field}`)"),
        })
        .collect();
    let detail = format!("The query string is invalid: {}.", messages.join(", "));
    errors.iter().fold(
        Problem::new(&codes::INVALID_QUERY, detail),
        |p, (field, reason)| p.field(field, reason),
    )
}

/// Whether percent-encoded text decodes to storable text. The decoder behind serde would silently replace invalid UTF-8.
fn decodes(text: &str) -> Result<(), &'static str> {
    let mut decoded = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            decoded.push(byte);
            continue;
        }
        let pair = [bytes.next(), bytes.next()];
        let [Some(high), Some(low)] = pair.map(|digit| char::from(digit?).to_digit(16)) else {
            return Err("a `%` must be followed by two hexadecimal digits");
        };
        decoded.push(u8::try_from(high * 16 + low).unwrap_or_default());
    }
    if decoded.contains(&0) {
        return Err("contains the NUL character, which can't be stored");
    }
    match std::str::from_utf8(&decoded) {
        Ok(_) => Ok(()),
        Err(_) => Err("is not UTF-8"),
    }
}

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for Path<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        if let Ok(raw) = RawPathParams::from_request_parts(parts, state).await {
            for (name, value) in &raw {
                if value.contains('\0') {
                    return Err(invalid_path("a value contains the NUL character")
                        .field(name, "contains the NUL character, which can't be stored"));
                }
            }
        }
        match axum::extract::Path::from_request_parts(parts, state).await {
            Ok(axum::extract::Path(value)) => Ok(Self(value)),
            Err(PathRejection::FailedToDeserializePathParams(error)) => {
                Err(path_problem(error.into_kind()))
            }
            // The route has no parameters although the handler expects some: our bug.
            Err(other) => Err(Problem::internal(other)),
        }
    }
}

fn path_problem(kind: axum::extract::path::ErrorKind) -> Problem {
    use axum::extract::path::ErrorKind;
    let reason = match &kind {
        ErrorKind::DeserializeError { value, message, .. }
            if message.starts_with("UUID parsing") =>
        {
            let example = "0198c1e2-5a3b-7c4d-8e5f-0123456789ab";
            format!(
                "{:?} is not an id: expected a UUID such as {example}",
                shorten(value)
            )
        }
        kind => shorten(&kind.to_string()),
    };
    match kind {
        ErrorKind::ParseErrorAtKey { key, .. }
        | ErrorKind::DeserializeError { key, .. }
        | ErrorKind::InvalidUtf8InPathParam { key } => invalid_path(&reason).field(key, reason),
        ErrorKind::ParseError { .. }
        | ErrorKind::ParseErrorAtIndex { .. }
        | ErrorKind::Message(_) => invalid_path(&reason),
        // The handler's type doesn't match its route.
        _ => Problem::internal(reason),
    }
}

fn invalid_path(reason: &str) -> Problem {
    Problem::new(
        &codes::INVALID_PATH,
        format!("The path is invalid: {reason}."),
    )
}
