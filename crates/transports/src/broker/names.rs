//! Names that every broker takes: most of ours are fine as they are.

use sha2::{Digest, Sha256};
use uuid::Uuid;

/// The text itself if it has only letters, digits and `allowed`; otherwise made so, with a hash that keeps two names apart.
pub(crate) fn plain(text: &str, allowed: &str) -> String {
    let fits = |c: char| c.is_ascii_alphanumeric() || allowed.contains(c);
    if text.chars().all(fits) {
        return text.to_owned();
    }
    let changed: String = text
        .chars()
        .map(|c| if fits(c) { c } else { '-' })
        .collect();
    format!("{changed}-{}", &hash(&[text]).simple().to_string()[..8])
}

/// An id that follows from these texts alone.
pub(crate) fn hash(texts: &[&str]) -> Uuid {
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
    fn a_name_that_fits_stays_and_others_stay_apart() {
        assert_eq!(plain("payment.requested", "._-"), "payment.requested");
        let (colon, slash) = (plain("a:b", "._-"), plain("a/b", "._-"));
        assert!(colon.starts_with("a-b-") && slash.starts_with("a-b-"));
        assert_ne!(colon, slash);
        assert_ne!(hash(&["ab", "c"]), hash(&["a", "bc"]));
    }
}
