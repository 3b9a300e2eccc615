//! A browser's visit: a random secret in a cookie, from which everything else about it is derived.
//!
//! Whoever stores a session keeps [`Visit::id`], a hash, so that nobody who reads the store can take a session over. A
//! form carries [`Visit::form_token`], another hash: a page of another origin can't read the cookie and so can't make it.

use std::fmt;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::{HeaderMap, HeaderValue, header};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

/// The secret's length as text: 32 bytes in base64url.
const LENGTH: usize = 43;

/// The secret of one visit.
#[derive(Clone, PartialEq, Eq)]
pub struct Visit(String);

impl Visit {
    /// A new one that nobody can guess.
    #[must_use]
    pub fn generate() -> Self {
        let bytes: [u8; 32] = rand::random();
        Self(URL_SAFE_NO_PAD.encode(bytes))
    }

    /// The one in the cookie of this name, if the browser sent one that we could have made.
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

    /// What a store knows it by.
    #[must_use]
    pub fn id(&self) -> [u8; 32] {
        self.derive("session")
    }

    /// What a form of this visit carries.
    #[must_use]
    pub fn form_token(&self) -> String {
        URL_SAFE_NO_PAD.encode(self.derive("form"))
    }

    /// Was this form made for this visit?
    #[must_use]
    pub fn made(&self, form_token: &str) -> bool {
        let own = self.form_token();
        own.as_bytes().ct_eq(form_token.as_bytes()).into()
    }

    /// The header that gives the browser its secret: out of reach for scripts, and sent only from our own pages.
    #[must_use]
    pub fn cookie(&self, name: &str, lasts: Duration, secure: bool) -> HeaderValue {
        header_of(name, &self.0, lasts.as_secs(), secure)
    }

    /// The header that makes the browser forget its secret.
    #[must_use]
    pub fn forget(name: &str, secure: bool) -> HeaderValue {
        header_of(name, "", 0, secure)
    }

    fn derive(&self, purpose: &str) -> [u8; 32] {
        let mut hash = Sha256::new();
        hash.update(purpose.as_bytes());
        hash.update(b":");
        hash.update(self.0.as_bytes());
        hash.finalize().into()
    }
}

impl fmt::Debug for Visit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Visit(hidden)")
    }
}

fn is_secret(value: &str) -> bool {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
    value.len() == LENGTH && value.bytes().all(plain)
}

fn header_of(name: &str, value: &str, seconds: u64, secure: bool) -> HeaderValue {
    let secure = if secure { "; Secure" } else { "" };
    let text =
        format!("{name}={value}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Strict{secure}");
    // Names are constants and secrets are base64: this is always a header.
    HeaderValue::try_from(text).unwrap_or_else(|_| HeaderValue::from_static(""))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(cookie: &str) -> HeaderMap {
        HeaderMap::from_iter([(header::COOKIE, cookie.parse().expect("a header"))])
    }

    #[test]
    fn a_visit_comes_back_from_its_cookie_among_others() {
        let visit = Visit::generate();
        let cookie = visit.cookie("visit", Duration::from_secs(60), true);
        let cookie = cookie.to_str().expect("text");
        for wanted in ["HttpOnly", "SameSite=Strict", "Secure", "Max-Age=60"] {
            assert!(cookie.contains(wanted), "{cookie}");
        }
        let pair = cookie.split(';').next().expect("a pair");
        let sent = headers(&format!("other=1; {pair}; more=2"));
        assert_eq!(Visit::from_cookie(&sent, "visit"), Some(visit));
        assert_eq!(Visit::from_cookie(&sent, "vis"), None);
    }

    #[test]
    fn what_we_could_not_have_made_is_no_visit() {
        for value in [
            "",
            "short",
            &"a".repeat(44),
            &"é".repeat(22),
            &"=".repeat(43),
        ] {
            let Ok(cookie) = format!("visit={value}").parse() else {
                continue;
            };
            let sent = HeaderMap::from_iter([(header::COOKIE, cookie)]);
            assert_eq!(Visit::from_cookie(&sent, "visit"), None, "{value}");
        }
    }

    #[test]
    fn a_form_belongs_to_one_visit_and_tells_nothing_of_it() {
        let (one, other) = (Visit::generate(), Visit::generate());
        assert!(one.made(&one.form_token()));
        assert!(!one.made(&other.form_token()));
        assert!(!one.made(""));
        assert_ne!(one.form_token(), URL_SAFE_NO_PAD.encode(one.id()));
        assert!(!one.form_token().contains(&one.0));
    }
}
