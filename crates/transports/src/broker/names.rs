//! Names that every broker accepts. Most of ours are valid as they are.

use sha2::{Digest, Sha256};
use uuid::Uuid;

/// The text itself if it has only letters, digits and `allowed`; otherwise a valid name with a hash that keeps it unique.
pub(crate) fn sanitize(text: &str, allowed: &str) -> String {
    let valid = |c: char| c.is_ascii_alphanumeric() || allowed.contains(c);
    if text.chars().all(valid) {
        return text.to_owned();
    }
    let changed: String = text
        .chars()
        .map(|c| if valid(c) { c } else { '-' })
        .collect();
    format!(
        "{changed}-{}",
        &stable_id(&[text]).simple().to_string()[..8]
    )
}

/// An id derived from these texts alone.
pub(crate) fn stable_id(texts: &[&str]) -> Uuid {
    let mut hash = Sha256::new();
    for text in texts {
        hash.update(text.len().to_be_bytes());
        hash.update(text.as_bytes());
    }
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&hash.finalize()[..16]);
    uuid::Builder::from_custom_bytes(bytes).into_uuid()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_valid_name_is_kept_and_others_stay_distinct() {
        assert_eq!(sanitize("payment.requested", "._-"), "payment.requested");
        let (colon, slash) = (sanitize("a:b", "._-"), sanitize("a/b", "._-"));
        assert!(colon.starts_with("a-b-") && slash.starts_with("a-b-"));
        assert_ne!(colon, slash);
        assert_ne!(stable_id(&["ab", "c"]), stable_id(&["a", "bc"]));
    }
}
