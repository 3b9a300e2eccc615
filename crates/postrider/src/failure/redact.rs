//! Redacts secrets in text that will be stored, logged or shown.
//!
//! Known shapes only: credentials after `Bearer` and `Basic`, passwords in URLs, values of keys named like a secret
//! (`password=…`, `"api_key": "…"`), signed tokens and private keys. It prefers to redact a harmless word over missing
//! a password.

/// Replacement for a secret.
const MASK: &str = "[redacted]";

/// A key that ends in one of these (letters and digits only, lower case) has a secret value.
const SECRET_KEYS: &[&str] = &[
    "password",
    "passwd",
    "passphrase",
    "pwd",
    "secret",
    "token",
    "apikey",
    "accesskey",
    "secretkey",
    "privatekey",
    "authorization",
    "credential",
    "credentials",
    "cookie",
    "sessionid",
    "xapikey",
    "signature",
    "sig",
];

/// Words after which the next word is a credential.
const SCHEMES: &[&str] = &["bearer", "basic"];

/// Prefixes by which tokens are recognised.
const TOKEN_STARTS: &[&str] = &[
    "eyJ", "pt_", "sk_live_", "sk_test_", "ghp_", "gho_", "xoxb-", "AKIA", "whsec_",
];

/// Replaces every recognised secret by `[redacted]`.
#[must_use]
pub fn redact(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    while at < text.len() {
        let rest = &text[at..];
        let at_word_start = !out.ends_with(is_word);
        if let Some(length) = private_key(rest) {
            out.push_str(MASK);
            at += length;
        } else if let Some((kept, length)) = url_password(rest) {
            out.push_str(&rest[..kept]);
            out.push_str(MASK);
            at += length;
        } else if let Some((kept, length)) = at_word_start.then(|| word_secret(rest)).flatten() {
            out.push_str(&rest[..kept]);
            out.push_str(MASK);
            at += length;
        } else {
            let next = rest.chars().next().map_or(1, char::len_utf8);
            out.push_str(&rest[..next]);
            at += next;
        }
    }
    out
}

/// Letters, digits and the characters that join them in keys and tokens.
fn is_word(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '-' | '.')
}

/// Length of a PEM private key at the start of the text; an unfinished one extends to the end.
fn private_key(rest: &str) -> Option<usize> {
    let head = rest.strip_prefix("-----BEGIN ")?;
    let line_end = head.find("-----")?;
    if !head[..line_end].contains("PRIVATE KEY") {
        return None;
    }
    let end = rest.find("-----END ").map_or(rest.len(), |start| {
        let tail = start + "-----END ".len();
        rest[tail..]
            .find("-----")
            .map_or(rest.len(), |stop| tail + stop + "-----".len())
    });
    Some(end)
}

/// In `://user:password@host` at the start of the text: what to keep before the password, and where it ends.
fn url_password(rest: &str) -> Option<(usize, usize)> {
    let authority = rest.strip_prefix("://")?;
    let end = authority
        .find(|c: char| c.is_whitespace() || matches!(c, '/' | '?' | '#' | '"' | '\'' | '<' | '>'))
        .unwrap_or(authority.len());
    let at = authority[..end].rfind('@')?;
    let colon = authority[..at].find(':').filter(|colon| colon + 1 < at)?;
    let prefix = "://".len();
    Some((prefix + colon + 1, prefix + at))
}

/// A secret that starts with the word at the start of the text: what to keep before it, and where it ends.
fn word_secret(rest: &str) -> Option<(usize, usize)> {
    let word_end = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
    let word = &rest[..word_end];
    if word.is_empty() {
        return None;
    }
    if is_token(word) {
        return Some((0, word_end));
    }
    let plain: String = word
        .chars()
        .filter(|c| c.is_ascii_alphanumeric())
        .map(|c| c.to_ascii_lowercase())
        .collect();
    if SCHEMES.contains(&plain.as_str()) {
        return after_scheme(rest, word_end)
            .filter(|_| plain != "basic" || !is_plain_word(rest, word_end));
    }
    if SECRET_KEYS.iter().any(|key| plain.ends_with(key)) {
        return key_value(rest, word_end);
    }
    None
}

fn is_token(word: &str) -> bool {
    word.len() >= 16 && TOKEN_STARTS.iter().any(|start| word.starts_with(start))
}

/// After a key: an optional closing quote, `=` or `:`, then the value.
fn key_value(rest: &str, key_end: usize) -> Option<(usize, usize)> {
    let mut at = key_end;
    // A quote inside quoted text has a backslash.
    at += rest[at..]
        .bytes()
        .take_while(|b| matches!(b, b'"' | b'\'' | b'\\'))
        .count();
    at += blanks(&rest[at..]);
    let sign = rest[at..]
        .bytes()
        .take_while(|b| matches!(b, b'=' | b':' | b'>'))
        .count();
    if sign == 0 {
        return None;
    }
    at += sign;
    at += blanks(&rest[at..]);
    // "authorization: Bearer abc": keep the scheme, redact what follows.
    let word_end = at + rest[at..].find(|c| !is_word(c)).unwrap_or(rest.len() - at);
    if SCHEMES
        .iter()
        .any(|scheme| rest[at..word_end].eq_ignore_ascii_case(scheme))
    {
        return after_scheme(rest, word_end);
    }
    secret_value(rest, at)
}

/// After `Bearer` or `Basic`: blanks, then the credential.
fn after_scheme(rest: &str, scheme_end: usize) -> Option<(usize, usize)> {
    let gap = blanks(&rest[scheme_end..]);
    if gap == 0 {
        None
    } else {
        secret_value(rest, scheme_end + gap)
    }
}

/// "basic authentication failed" contains no credential.
fn is_plain_word(rest: &str, before: usize) -> bool {
    let word = rest[before..].split_whitespace().next().unwrap_or_default();
    word.bytes().all(|b| b.is_ascii_lowercase())
}

/// The value that starts at `start`, quoted or up to the next separator.
fn secret_value(rest: &str, start: usize) -> Option<(usize, usize)> {
    // Redacting twice changes nothing.
    if rest[start..].starts_with(MASK) {
        return Some((start, start + MASK.len()));
    }
    let escape = rest[start..].bytes().take_while(|b| *b == b'\\').count();
    let quote = rest[start + escape..]
        .chars()
        .next()
        .filter(|c| matches!(c, '"' | '\''));
    let (from, end) = if let Some(quote) = quote {
        let from = start + escape + 1;
        (from, from + quoted_length(&rest[from..], quote, escape))
    } else {
        let value = &rest[start..];
        let stop = |c: char| {
            c.is_whitespace() || matches!(c, ',' | ';' | '&' | '"' | '\'' | ')' | '}' | ']')
        };
        (start, start + value.find(stop).unwrap_or(value.len()))
    };
    (end > from).then_some((from, end))
}

/// Up to the closing quote with as many backslashes as the opening one; to the end if there is none.
fn quoted_length(value: &str, quote: char, escapes: usize) -> usize {
    let mut backslashes = 0;
    for (index, c) in value.char_indices() {
        if c == quote && backslashes == escapes {
            return index - escapes;
        }
        backslashes = if c == '\\' { backslashes + 1 } else { 0 };
    }
    value.len()
}

fn blanks(text: &str) -> usize {
    text.bytes()
        .take_while(|b| matches!(b, b' ' | b'\t'))
        .count()
}
