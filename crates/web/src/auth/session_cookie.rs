//! A browser session: a random secret in a cookie, from which everything else is derived.
//!
//! The session store keeps only [`SessionSecret::id`], a hash, so that reading the store isn't enough to hijack a session. A form
//! contains [`SessionSecret::form_token`], another hash: a page of another origin can't read the cookie, so it can't forge it.

use std::fmt;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::{HeaderMap, HeaderValue, header};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

/// The secret's length as text: 32 bytes in base64url.
const LENGTH: usize = 43;

/// The secret of one browser session.
#[derive(Clone, PartialEq, Eq)]
pub struct SessionSecret(String);

impl SessionSecret {
    /// A new random secret.
    #[must_use]
    pub fn generate() -> Self {
        let bytes: [u8; 32] = rand::random();
        Self(URL_SAFE_NO_PAD.encode(bytes))
    }

    /// The secret in the cookie with this name, if it's well-formed.
    #[must_use]
    pub fn from_cookie(headers: &HeaderMap, name: &str) -> Option<Self> {
        headers
            .get_all(header::COOKIE)
            .iter()
            .filter_map(|value| value.to_str().ok())
            .flat_map(|value| value.split(';'))
            .filter_map(|pair| pair.trim().split_once('='))
            .find(|(key, value)| *key == name && is_secret(value))
            .map(|(_, value)| Self(value.to_owned()))
    }

    /// The session's key in a store.
    #[must_use]
    pub fn id(&self) -> [u8; 32] {
        self.derive("session")
    }

    /// The token that forms of this session contain.
    #[must_use]
    pub fn form_token(&self) -> String {
        URL_SAFE_NO_PAD.encode(self.derive("form"))
    }

    /// Does this token belong to a form of this session?
    #[must_use]
    pub fn verify_form_token(&self, form_token: &str) -> bool {
        let own = self.form_token();
        own.as_bytes().ct_eq(form_token.as_bytes()).into()
    }

    /// The `Set-Cookie` header: inaccessible to scripts, and sent only from our own pages.
    #[must_use]
    pub fn cookie(&self, name: &str, lifetime: Duration, secure: bool) -> HeaderValue {
        set_cookie(name, &self.0, lifetime.as_secs(), secure)
    }

    /// The `Set-Cookie` header that deletes the cookie.
    #[must_use]
    pub fn clear_cookie(name: &str, secure: bool) -> HeaderValue {
        set_cookie(name, "", 0, secure)
    }

    fn derive(&self, purpose: &str) -> [u8; 32] {
        let mut hash = Sha256::new();
        hash.update(purpose.as_bytes());
        hash.update(b":");
        hash.update(self.0.as_bytes());
        hash.finalize().into()
    }
}

impl fmt::Debug for SessionSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SessionSecret(hidden)")
    }
}

fn is_secret(value: &str) -> bool {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
    value.len() == LENGTH && value.bytes().all(plain)
}

fn set_cookie(name: &str, value: &str, seconds: u64, secure: bool) -> HeaderValue {
    let secure = if secure { "; Secure" } else { "" };
    let text =
        format!("{name}={value}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Strict{secure}");
    // Names are constants and secrets are base64: always a valid header.
    HeaderValue::try_from(text).unwrap_or_else(|_| HeaderValue::from_static(""))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(cookie: &str) -> HeaderMap {
        HeaderMap::from_iter([(header::COOKIE, cookie.parse().expect("a header"))])
    }

    #[test]
    fn a_secret_is_read_from_its_cookie_among_others() {
        let session = SessionSecret::generate();
        let cookie = session.cookie("session", Duration::from_secs(60), true);
        let cookie = cookie.to_str().expect("text");
        for wanted in ["HttpOnly", "SameSite=Strict", "Secure", "Max-Age=60"] {
            assert!(cookie.contains(wanted), "{cookie}");
        }
        let pair = cookie.split(';').next().expect("a pair");
        let sent = headers(&format!("other=1; {pair}; more=2"));
        assert_eq!(SessionSecret::from_cookie(&sent, "session"), Some(session));
        assert_eq!(SessionSecret::from_cookie(&sent, "vis"), None);
    }

    #[test]
    fn a_malformed_cookie_is_ignored() {
        for value in [
            "",
            "short",
            &"a".repeat(44),
            &"é".repeat(22),
            &"=".repeat(43),
        ] {
            let Ok(cookie) = format!("session={value}").parse() else {
                continue;
            };
            let sent = HeaderMap::from_iter([(header::COOKIE, cookie)]);
            assert_eq!(
                SessionSecret::from_cookie(&sent, "session"),
                None,
                "{value}"
            );
        }
    }

    #[test]
    fn a_form_belongs_to_one_visit_and_tells_nothing_of_it() {
        let (one, other) = (SessionSecret::generate(), SessionSecret::generate());
        assert!(one.verify_form_token(&one.form_token()));
        assert!(!one.verify_form_token(&other.form_token()));
        assert!(!one.verify_form_token(""));
        assert_ne!(one.form_token(), URL_SAFE_NO_PAD.encode(one.id()));
        assert!(!one.form_token().contains(&one.0));
    }
}
