//! Bearer tokens, of which only hashes are stored.
//!
//! A token is 32 random bytes, so its plain SHA-256 can't be reversed; a slow password hash would only slow down every request.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::{HeaderMap, header};
use serde::Deserialize;
use sha2::{Digest, Sha256};
use subtle::{Choice, ConditionallySelectable, ConstantTimeEq};

use super::{Caller, Scope, Scopes};

const PREFIX: &str = "pt_";
const MAX_LENGTH: usize = 512;

/// Why a configured token is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// The name is empty or unprintable.
    #[error("a token needs a name of 1 to 64 printable characters: it is what the audit log shows")]
    Name,
    /// The hash is not 64 hexadecimal digits.
    #[error(
        "the sha256 of token `{0}` must be 64 hexadecimal digits: the hash, not the token itself"
    )]
    Hash(String),
    /// The token has no scopes.
    #[error("token `{0}` has no scopes: give it some of submit, read, operate, internal")]
    NoScopes(String),
    /// Two tokens share a name.
    #[error("two tokens are called `{0}`: names tell callers apart")]
    SameName(String),
    /// Two tokens share a hash.
    #[error("the tokens `{0}` and `{1}` have the same hash: make one token per caller")]
    SameHash(String, String),
}

/// A caller's credentials as configured: `{ name, sha256, scopes }`.
#[derive(Clone, Deserialize)]
#[serde(try_from = "Configured")]
pub struct Token {
    name: String,
    sha256: [u8; 32],
    scopes: Scopes,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Configured {
    name: String,
    sha256: String,
    scopes: Vec<Scope>,
}

impl TryFrom<Configured> for Token {
    type Error = TokenError;

    fn try_from(raw: Configured) -> Result<Self, TokenError> {
        Token::new(raw.name, &raw.sha256, raw.scopes.into_iter().collect())
    }
}

impl Token {
    /// A token with this name, the hexadecimal SHA-256 of its text, and its scopes.
    ///
    /// # Errors
    /// If one of the three is invalid.
    pub fn new(name: impl Into<String>, sha256: &str, scopes: Scopes) -> Result<Self, TokenError> {
        let name = name.into();
        let printable = name.chars().all(|c| !c.is_control());
        if name.trim().is_empty() || name.chars().count() > 64 || !printable {
            return Err(TokenError::Name);
        }
        if scopes.is_empty() {
            return Err(TokenError::NoScopes(name));
        }
        let mut hash = [0; 32];
        if hex::decode_to_slice(sha256, &mut hash).is_err() {
            return Err(TokenError::Hash(name));
        }
        Ok(Self {
            name,
            sha256: hash,
            scopes,
        })
    }

    /// The caller's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The token's scopes.
    #[must_use]
    pub fn scopes(&self) -> Scopes {
        self.scopes
    }

    /// Identifies this token without being usable as one: the hash of its hash.
    #[must_use]
    pub fn fingerprint(&self) -> [u8; 32] {
        Sha256::digest(self.sha256).into()
    }

    /// The caller that presents it.
    #[must_use]
    pub fn caller(&self) -> Caller {
        Caller::new(&self.name, self.scopes)
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Token")
            .field("name", &self.name)
            .field("scopes", &self.scopes)
            .finish_non_exhaustive()
    }
}

/// A new token. The secret is shown once and stored nowhere.
pub struct NewToken {
    secret: String,
}

impl NewToken {
    /// `pt_` and 32 random bytes in base64url.
    #[must_use]
    pub fn generate() -> Self {
        let bytes: [u8; 32] = rand::random();
        Self {
            secret: format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(bytes)),
        }
    }

    /// The text that the caller sends.
    #[must_use]
    pub fn secret(&self) -> &str {
        &self.secret
    }

    /// The hash for the configuration: SHA-256 in hexadecimal.
    #[must_use]
    pub fn sha256(&self) -> String {
        hex::encode(hash(&self.secret))
    }
}

impl fmt::Debug for NewToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NewToken(hidden)")
    }
}

fn hash(token: &str) -> [u8; 32] {
    Sha256::digest(token.as_bytes()).into()
}

/// The result of authentication.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Authentication {
    /// A configured caller.
    Known(Caller),
    /// No credentials.
    Missing,
    /// Invalid credentials.
    Invalid,
}

/// All configured tokens. Without any, every caller has every scope.
#[derive(Debug, Clone, Default)]
pub struct Tokens(Vec<Token>);

impl Tokens {
    /// The configured tokens.
    ///
    /// # Errors
    /// If two of them share a name or a hash.
    pub fn new(tokens: Vec<Token>) -> Result<Self, TokenError> {
        for (index, token) in tokens.iter().enumerate() {
            for earlier in &tokens[..index] {
                if earlier.name == token.name {
                    return Err(TokenError::SameName(token.name.clone()));
                }
                if earlier.sha256 == token.sha256 {
                    let names = (earlier.name.clone(), token.name.clone());
                    return Err(TokenError::SameHash(names.0, names.1));
                }
            }
        }
        Ok(Self(tokens))
    }

    /// Whether none are configured.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Checks a request's `Authorization` header. Compares every configured token in constant time.
    #[must_use]
    pub fn authenticate(&self, headers: &HeaderMap) -> Authentication {
        if self.is_empty() {
            return Authentication::Known(Caller::local());
        }
        let mut values = headers.get_all(header::AUTHORIZATION).iter();
        let value = match (values.next(), values.next()) {
            (None, _) => return Authentication::Missing,
            (Some(value), None) => value,
            (Some(_), Some(_)) => return Authentication::Invalid,
        };
        let Some(presented) = value.to_str().ok().and_then(bearer) else {
            return Authentication::Invalid;
        };
        match self.verify(presented) {
            Some(token) => Authentication::Known(token.caller()),
            None => Authentication::Invalid,
        }
    }

    /// The token with this text. Compares every configured token in constant time.
    #[must_use]
    pub fn verify(&self, presented: &str) -> Option<&Token> {
        self.find(&hash(presented))
    }

    /// The token with this [`Token::fingerprint`], if it's still configured.
    #[must_use]
    pub fn by_fingerprint(&self, fingerprint: &[u8]) -> Option<&Token> {
        self.0
            .iter()
            .find(|token| token.fingerprint() == fingerprint)
    }

    fn find(&self, presented: &[u8; 32]) -> Option<&Token> {
        let mut index = u64::MAX;
        for (candidate, token) in (0_u64..).zip(&self.0) {
            let same: Choice = token.sha256.ct_eq(presented);
            index.conditional_assign(&candidate, same);
        }
        self.0.get(usize::try_from(index).ok()?)
    }
}

fn bearer(value: &str) -> Option<&str> {
    let (scheme, token) = value.split_once(' ')?;
    let token = token.trim();
    let usable = scheme.eq_ignore_ascii_case("bearer") && (1..=MAX_LENGTH).contains(&token.len());
    usable.then_some(token)
}
