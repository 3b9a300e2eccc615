//! Finds what a canonical form would silently change: numbers with too many digits, and repeated keys.
//!
//! One pass over a text that is known to be valid JSON. A number passes if its decimal value is exactly the one that
//! RFC 8785 prints for its double, so two different numbers never get the same canonical form.

use std::{borrow::Cow, fmt::Write as _};

use super::DigestError;
use crate::decimal::Decimal;

/// A container that the pass is in.
enum Frame<'a> {
    Array { index: usize },
    Object { keys: Vec<Cow<'a, str>> },
}

/// Rejects the first number that would be rounded and the first repeated key.
pub(super) fn check(text: &str) -> Result<(), DigestError> {
    let bytes = text.as_bytes();
    let mut frames: Vec<Frame<'_>> = Vec::new();
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        match byte {
            b'{' => frames.push(Frame::Object { keys: Vec::new() }),
            b'[' => frames.push(Frame::Array { index: 0 }),
            b'}' | b']' => leave(&mut frames)?,
            b',' => {
                if let Some(Frame::Array { index }) = frames.last_mut() {
                    *index += 1;
                }
            }
            b'"' => {
                let end = at + string_length(&bytes[at..]);
                if is_key(&bytes[end..])
                    && let Some(Frame::Object { keys }) = frames.last_mut()
                {
                    keys.push(unquoted(&text[at..end])?);
                }
                at = end;
                continue;
            }
            b'-' | b'0'..=b'9' => {
                let end = at + number_length(&bytes[at..]);
                if !is_exact(&text[at..end])? {
                    let number = crate::failure::storable(&text[at..end], 60);
                    return Err(DigestError::Inexact {
                        path: pointer(&frames),
                        number,
                    });
                }
                at = end;
                continue;
            }
            _ => {}
        }
        at += 1;
    }
    Ok(())
}

/// Length of the string that starts here, quotes included.
fn string_length(bytes: &[u8]) -> usize {
    let mut at = 1;
    while let Some(&byte) = bytes.get(at) {
        match byte {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    bytes.len()
}

/// Whether the string that ended here is followed by a colon.
fn is_key(after: &[u8]) -> bool {
    after.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b':')
}

fn number_length(bytes: &[u8]) -> usize {
    bytes
        .iter()
        .take_while(|byte| matches!(byte, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E'))
        .count()
}

/// A string without its quotes and escapes.
fn unquoted(string: &str) -> Result<Cow<'_, str>, serde_json::Error> {
    if string.contains('\\') {
        return serde_json::from_str(string).map(Cow::Owned);
    }
    Ok(Cow::Borrowed(string.trim_matches('"')))
}

/// At the end of a container: no two of its keys may be the same.
fn leave(frames: &mut Vec<Frame<'_>>) -> Result<(), DigestError> {
    if let Some(Frame::Object { keys }) = frames.last_mut() {
        keys.sort_unstable();
        if let Some(twice) = keys.windows(2).position(|pair| pair[0] == pair[1]) {
            keys.truncate(twice + 1);
            let path = pointer(frames);
            return Err(DigestError::DuplicateKey { path });
        }
    }
    frames.pop();
    Ok(())
}

/// The current position, as a JSON pointer (RFC 6901).
fn pointer(frames: &[Frame<'_>]) -> String {
    let mut path = String::new();
    for frame in frames {
        match frame {
            Frame::Array { index } => drop(write!(path, "/{index}")),
            Frame::Object { keys } => {
                let current = keys.last().map_or("", AsRef::as_ref);
                path.push('/');
                path.push_str(&current.replace('~', "~0").replace('/', "~1"));
            }
        }
    }
    path
}

/// Whether the canonical form of this number means the same as its text.
fn is_exact(text: &str) -> Result<bool, serde_json::Error> {
    let Ok(double) = text.parse::<f64>() else {
        return Ok(false);
    };
    if !double.is_finite() {
        return Ok(false);
    }
    let printed = serde_json_canonicalizer::to_string(&double)?;
    let decimal = str::parse::<Decimal>;
    Ok(decimal(text).is_ok_and(|meant| decimal(&printed) == Ok(meant)))
}
