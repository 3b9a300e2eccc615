//! The items of all queues: a number, and padding that does not compress.

use serde::{Deserialize, Serialize};

/// One item. The number reveals lost and duplicate items.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Item {
    /// The number, from zero.
    pub n: u64,
    /// Padding, absent in tiny items.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub pad: String,
}

/// Bytes of JSON around number and padding.
const OVERHEAD: usize = 24;

/// Creates items of one size.
#[derive(Debug, Clone)]
pub struct Items {
    pad: String,
}

impl Items {
    /// Items with about this many bytes of JSON.
    pub fn new(bytes: usize) -> Self {
        const LETTERS: &[u8; 64] =
            b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_";
        // A fixed generator: the same padding for all adapters, and not compressible.
        let mut state: u32 = 0x9e37_79b9;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 17;
            state ^= state << 5;
            char::from(LETTERS[(state >> 26) as usize])
        };
        let length = bytes.saturating_sub(OVERHEAD);
        Self {
            pad: (0..length).map(|_| next()).collect(),
        }
    }

    /// The item with this number.
    pub fn item(&self, n: u64) -> Item {
        Item {
            n,
            pad: self.pad.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiny_item_is_only_a_number_and_a_large_one_has_its_size() -> Result<(), serde_json::Error> {
        let tiny = serde_json::to_string(&Items::new(16).item(7))?;
        assert_eq!(tiny, r#"{"n":7}"#);
        let large = serde_json::to_string(&Items::new(1024).item(7))?;
        assert!((1000..=1030).contains(&large.len()), "{}", large.len());
        Ok(())
    }
}
