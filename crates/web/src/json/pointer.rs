//! JSON pointers (RFC 6901), truncated to fit into a response.

use std::fmt;

/// Maximum length: a key can be as long as the body.
const MAX_LENGTH: usize = 256;

/// The position of a value in a JSON text.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Pointer(String);

impl Pointer {
    pub(super) fn push(&mut self, segment: &str) {
        if self.0.ends_with('…') {
            return;
        }
        self.0.push('/');
        for character in segment.chars() {
            if self.0.len() >= MAX_LENGTH {
                self.0.push('…');
                return;
            }
            match character {
                '~' => self.0.push_str("~0"),
                '/' => self.0.push_str("~1"),
                other => self.0.push(other),
            }
        }
    }

    /// The pointer's text; empty for the whole document.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Pointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            f.write_str("the top level")
        } else {
            f.write_str(&self.0)
        }
    }
}

impl From<&serde_path_to_error::Path> for Pointer {
    fn from(path: &serde_path_to_error::Path) -> Self {
        use serde_path_to_error::Segment;
        let mut pointer = Pointer::default();
        for segment in path {
            match segment {
                Segment::Seq { index } => pointer.push(&index.to_string()),
                Segment::Map { key } => pointer.push(key),
                Segment::Enum { variant } => pointer.push(variant),
                Segment::Unknown => {}
            }
        }
        pointer
    }
}

impl From<&serde_ignored::Path<'_>> for Pointer {
    fn from(path: &serde_ignored::Path<'_>) -> Self {
        use serde_ignored::Path;
        match path {
            Path::Root => Pointer::default(),
            Path::Seq { parent, index } => Pointer::child(parent, &index.to_string()),
            Path::Map { parent, key } => Pointer::child(parent, key),
            Path::Some { parent }
            | Path::NewtypeStruct { parent }
            | Path::NewtypeVariant { parent } => Pointer::from(*parent),
        }
    }
}

impl Pointer {
    fn child(parent: &serde_ignored::Path<'_>, segment: &str) -> Self {
        let mut pointer = Pointer::from(parent);
        pointer.push(segment);
        pointer
    }
}
