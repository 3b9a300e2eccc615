//! What is never printed: values of secret keys, and passwords in URLs.

/// Keys whose whole value is hidden, by their last word.
const SECRET_WORDS: [&str; 6] = [
    "secret",
    "password",
    "token",
    "tokens",
    "secret_key",
    "access_key",
];

/// Replaces a secret.
pub(super) const HIDDEN: &str = "********";

/// Is the whole value of this key hidden?
pub(super) fn is_secret(key: &str) -> bool {
    let last = key.rsplit('.').next().unwrap_or(key);
    SECRET_WORDS
        .iter()
        .any(|word| last == *word || last.ends_with(&format!("_{word}")))
}

/// The text with the password of a URL replaced; other text is returned unchanged.
pub fn redact(text: &str) -> String {
    let Ok(mut url) = url::Url::parse(text) else {
        return text.to_owned();
    };
    if !url.has_authority() {
        return text.to_owned();
    }
    if url.password().is_some() && url.set_password(Some(HIDDEN)).is_err() {
        return HIDDEN.to_owned();
    }
    let secret_parameters = url
        .query_pairs()
        .any(|(name, _)| is_secret(&name) || name == "sslpassword");
    if secret_parameters {
        let pairs: Vec<(String, String)> = url
            .query_pairs()
            .map(|(name, value)| {
                let hide = is_secret(&name) || name == "sslpassword";
                (
                    name.to_string(),
                    if hide {
                        HIDDEN.to_owned()
                    } else {
                        value.to_string()
                    },
                )
            })
            .collect();
        url.query_pairs_mut().clear().extend_pairs(pairs);
    }
    url.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_in_an_address_is_hidden_wherever_it_stands() {
        assert_eq!(
            redact("postgres://me:s3cret@db/x"),
            "postgres://me:********@db/x"
        );
        assert!(!redact("postgres://db/x?password=s3cret&a=1").contains("s3cret"));
        assert!(!redact("postgres://db/x?sslpassword=s3cret").contains("s3cret"));
        assert_eq!(redact("postgres://db/x"), "postgres://db/x");
        assert_eq!(redact("127.0.0.1:8080"), "127.0.0.1:8080");
    }

    #[test]
    fn secret_keys_are_known_by_their_last_word() {
        assert!(is_secret("server.tokens"));
        assert!(is_secret("evidence.notify.secret"));
        assert!(is_secret("store.aws_secret_key"));
        assert!(!is_secret("server.listen"));
    }
}
