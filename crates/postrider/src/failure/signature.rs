//! One signature for failures that differ only in their particulars.
//!
//! `order 17 at "10.0.0.3:443" timed out after 1.5s` and `order 99 at "10.0.0.9:443" timed out after 3s` belong to one
//! group: `order <n> at <s> timed out after <n>s`.

use super::{MAX_MESSAGE, cut, storable};

/// Maximum length of a signature in bytes.
pub const MAX_SIGNATURE: usize = 240;

/// The message with numbers, UUIDs, hexadecimal strings and quoted values replaced by placeholders.
#[must_use]
pub fn signature(message: &str) -> String {
    let mut out = String::new();
    let mut rest = cut(message, MAX_MESSAGE);
    let mut before = ' ';
    while let Some(c) = rest.chars().next() {
        if out.len() > MAX_SIGNATURE {
            break;
        }
        let (placeholder, length) = particular(rest, before);
        if length > 0 {
            out.push_str(placeholder);
            before = '>';
            rest = &rest[length..];
        } else if c.is_whitespace() || c.is_control() {
            if !out.is_empty() && !out.ends_with(' ') {
                out.push(' ');
            }
            before = ' ';
            rest = &rest[c.len_utf8()..];
        } else {
            out.push(c);
            before = c;
            rest = &rest[c.len_utf8()..];
        }
    }
    storable(out.trim_end(), MAX_SIGNATURE)
}

/// The placeholder and length of a particular at the start of `rest`, if there is one.
fn particular(rest: &str, before: char) -> (&'static str, usize) {
    const NOTHING: (&str, usize) = ("", 0);
    let Some(first) = rest.chars().next() else {
        return NOTHING;
    };
    if matches!(first, '"' | '\'' | '`') {
        // An apostrophe within a word isn't a quote.
        return if before.is_alphanumeric() {
            NOTHING
        } else {
            ("<s>", quoted(rest, first))
        };
    }
    if !before.is_alphanumeric() {
        let word = rest
            .bytes()
            .take_while(|b| b.is_ascii_hexdigit() || *b == b'-')
            .count();
        if is_uuid(&rest[..word]) {
            return ("<uuid>", word);
        }
        let hex = hex_length(rest);
        if hex > 0 {
            return ("<hex>", hex);
        }
    }
    if first.is_numeric() {
        return ("<n>", number(rest));
    }
    NOTHING
}

/// Length of a quoted value with its quotes; None if it doesn't close at the end of a word.
fn quoted(rest: &str, quote: char) -> usize {
    let mut chars = rest.char_indices().skip(1).peekable();
    while let Some((index, c)) = chars.next() {
        let closes = c == quote && chars.peek().is_none_or(|(_, next)| !next.is_alphanumeric());
        if closes {
            return index + c.len_utf8();
        }
    }
    0
}

/// `0x…`, or at least eight hexadecimal digits as a word of their own with a decimal digit among them.
fn hex_length(rest: &str) -> usize {
    let digits = |text: &str| text.bytes().take_while(u8::is_ascii_hexdigit).count();
    let word_ends = |at: usize| !rest[at..].chars().next().is_some_and(char::is_alphanumeric);
    if let Some(tail) = rest.strip_prefix("0x") {
        let length = digits(tail);
        return if length > 0 && word_ends(length + 2) {
            length + 2
        } else {
            0
        };
    }
    let length = digits(rest);
    let word = &rest[..length];
    let mixed =
        word.bytes().any(|b| b.is_ascii_digit()) && word.bytes().any(|b| b.is_ascii_alphabetic());
    if length >= 8 && mixed && word_ends(length) {
        length
    } else {
        0
    }
}

/// Digits with the points, commas and colons between them: versions, addresses and times are one particular.
fn number(rest: &str) -> usize {
    let mut end = 0;
    let mut chars = rest.char_indices().peekable();
    while let Some((index, c)) = chars.next() {
        let joins =
            matches!(c, '.' | ',' | ':') && chars.peek().is_some_and(|(_, next)| next.is_numeric());
        if !c.is_numeric() && !joins {
            break;
        }
        end = index + c.len_utf8();
    }
    end
}

fn is_uuid(word: &str) -> bool {
    const GROUPS: [usize; 5] = [8, 4, 4, 4, 12];
    word.len() == 36 && word.split('-').map(str::len).eq(GROUPS)
}
