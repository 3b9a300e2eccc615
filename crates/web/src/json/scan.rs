//! The first pass: one walk over the text, nothing built but the keys of the open objects.

use std::borrow::Cow;
use std::collections::HashSet;

use super::error::Within;
use super::pointer::Pointer;
use super::{JsonError, Limits, MAX_DEPTH, number};

/// Refuses whatever is not JSON or not allowed.
pub(super) fn scan(text: &str, limits: &Limits) -> Result<(), JsonError> {
    let mut scanner = Scanner {
        text,
        at: 0,
        open: Vec::new(),
        max_depth: limits.max_depth.min(MAX_DEPTH),
        any_number: limits.any_number,
    };
    scanner.document()
}

/// An array or object that is not closed yet.
enum Open<'a> {
    Array {
        index: usize,
    },
    Object {
        key: Cow<'a, str>,
        seen: HashSet<Cow<'a, str>>,
    },
}

struct Scanner<'a> {
    text: &'a str,
    at: usize,
    open: Vec<Open<'a>>,
    max_depth: usize,
    any_number: bool,
}

impl<'a> Scanner<'a> {
    fn document(&mut self) -> Result<(), JsonError> {
        loop {
            self.skip_space();
            // An array or object that has just been opened and has something in it.
            if self.value()? {
                continue;
            }
            // A value has ended: close what ends with it, or go on to the next one.
            loop {
                self.skip_space();
                let next = self.peek();
                match (self.open.last_mut(), next) {
                    (None, None) => return Ok(()),
                    (None, Some(_)) => return Err(self.syntax("expected the end of the text")),
                    (Some(Open::Array { index }), Some(b',')) => {
                        *index += 1;
                        self.at += 1;
                        break;
                    }
                    (Some(Open::Object { .. }), Some(b',')) => {
                        self.at += 1;
                        self.skip_space();
                        self.key()?;
                        break;
                    }
                    (Some(Open::Array { .. }), Some(b']'))
                    | (Some(Open::Object { .. }), Some(b'}')) => {
                        self.at += 1;
                        self.open.pop();
                    }
                    (Some(Open::Array { .. }), _) => {
                        return Err(self.syntax("expected `,` or `]`"));
                    }
                    (Some(Open::Object { .. }), _) => {
                        return Err(self.syntax("expected `,` or `}`"));
                    }
                }
            }
        }
    }

    /// Reads a scalar or an empty array or object and answers false, or opens a filled one and
    /// answers true: its first value comes next.
    fn value(&mut self) -> Result<bool, JsonError> {
        match self.peek() {
            Some(b'{') => {
                self.enter(Open::Object {
                    key: Cow::Borrowed(""),
                    seen: HashSet::new(),
                })?;
                if self.leave_if(b'}') {
                    return Ok(false);
                }
                self.key()?;
                Ok(true)
            }
            Some(b'[') => {
                self.enter(Open::Array { index: 0 })?;
                Ok(!self.leave_if(b']'))
            }
            Some(b'"') => self.string(Within::Value).map(|_| false),
            Some(b'-' | b'0'..=b'9') => self.number().map(|()| false),
            Some(b't') => self.literal("true"),
            Some(b'f') => self.literal("false"),
            Some(b'n') => self.literal("null"),
            _ => Err(self.syntax("expected a value")),
        }
    }

    fn enter(&mut self, open: Open<'a>) -> Result<(), JsonError> {
        if self.open.len() >= self.max_depth {
            return Err(JsonError::TooDeep {
                pointer: self.pointer(),
                limit: self.max_depth,
            });
        }
        self.open.push(open);
        self.at += 1;
        self.skip_space();
        Ok(())
    }

    fn leave_if(&mut self, closing: u8) -> bool {
        let closes = self.peek() == Some(closing);
        if closes {
            self.at += 1;
            self.open.pop();
        }
        closes
    }

    fn key(&mut self) -> Result<(), JsonError> {
        if self.peek() != Some(b'"') {
            return Err(self.syntax("expected a key in double quotes"));
        }
        let name = self.string(Within::Key)?;
        let Some(Open::Object { key, seen }) = self.open.last_mut() else {
            return Err(self.syntax("expected a value"));
        };
        *key = name.clone();
        if !seen.insert(name) {
            return Err(JsonError::DuplicateKey {
                pointer: self.pointer(),
            });
        }
        self.skip_space();
        if self.peek() != Some(b':') {
            return Err(self.syntax("expected `:` after the key"));
        }
        self.at += 1;
        self.skip_space();
        Ok(())
    }

    /// Reads a string. What it says is put together only for keys with escapes in them; every
    /// other string is borrowed or not looked at again.
    fn string(&mut self, within: Within) -> Result<Cow<'a, str>, JsonError> {
        self.at += 1;
        let mut start = self.at;
        let mut said = Cow::Borrowed("");
        let keep = within == Within::Key;
        loop {
            match self.peek() {
                Some(b'"') => {
                    if keep {
                        said += &self.text[start..self.at];
                    }
                    self.at += 1;
                    return Ok(said);
                }
                Some(b'\\') => {
                    if keep {
                        said += &self.text[start..self.at];
                    }
                    let character = self.escape(within)?;
                    if keep {
                        said.to_mut().push(character);
                    }
                    start = self.at;
                }
                Some(0..=0x1f) => {
                    return Err(self.syntax("a control character in a string must be escaped"));
                }
                Some(_) => self.at += 1,
                None => return Err(self.syntax("expected the closing quote of a string")),
            }
        }
    }

    fn escape(&mut self, within: Within) -> Result<char, JsonError> {
        self.at += 1;
        let plain = match self.peek() {
            Some(quoted @ (b'"' | b'\\' | b'/')) => char::from(quoted),
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => return self.unicode_escape(within),
            _ => return Err(self.syntax("an escape sequence that JSON does not have")),
        };
        self.at += 1;
        Ok(plain)
    }

    fn unicode_escape(&mut self, within: Within) -> Result<char, JsonError> {
        let first = self.hex4()?;
        if first == 0 {
            let pointer = self.pointer_around(within);
            return Err(JsonError::Nul { within, pointer });
        }
        if let Some(character) = char::from_u32(first) {
            return Ok(character);
        }
        // A surrogate: it must be a high one, with its low one right behind it.
        if first < 0xDC00 && self.text[self.at..].starts_with("\\u") {
            self.at += 1;
            let second = self.hex4()?;
            if (0xDC00..0xE000).contains(&second) {
                let joined = 0x1_0000 + ((first - 0xD800) << 10) + (second - 0xDC00);
                return Ok(char::from_u32(joined).unwrap_or(char::REPLACEMENT_CHARACTER));
            }
        }
        let pointer = self.pointer_around(within);
        Err(JsonError::LoneSurrogate { within, pointer })
    }

    /// Reads `uXXXX`, standing on the `u`.
    fn hex4(&mut self) -> Result<u32, JsonError> {
        self.at += 1;
        let mut code = 0;
        for _ in 0..4 {
            let digit = self.peek().and_then(|byte| char::from(byte).to_digit(16));
            let Some(digit) = digit else {
                return Err(self.syntax("expected four hexadecimal digits after `\\u`"));
            };
            code = code * 16 + digit;
            self.at += 1;
        }
        Ok(code)
    }

    fn number(&mut self) -> Result<(), JsonError> {
        let start = self.at;
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        if self.peek() == Some(b'0') {
            self.at += 1;
        } else {
            self.digits()?;
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.digits()?;
        }
        if let Some(b'e' | b'E') = self.peek() {
            self.at += 1;
            if let Some(b'+' | b'-') = self.peek() {
                self.at += 1;
            }
            self.digits()?;
        }
        if !self.any_number && !number::is_exact(&self.text[start..self.at]) {
            return Err(JsonError::InexactNumber {
                pointer: self.pointer(),
            });
        }
        Ok(())
    }

    fn digits(&mut self) -> Result<(), JsonError> {
        let start = self.at;
        while let Some(b'0'..=b'9') = self.peek() {
            self.at += 1;
        }
        if self.at == start {
            return Err(self.syntax("expected a digit"));
        }
        Ok(())
    }

    fn literal(&mut self, word: &str) -> Result<bool, JsonError> {
        if !self.text[self.at..].starts_with(word) {
            return Err(self.syntax("expected a value"));
        }
        self.at += word.len();
        Ok(false)
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn skip_space(&mut self) {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.peek() {
            self.at += 1;
        }
    }

    fn syntax(&self, expected: &'static str) -> JsonError {
        // The scanner stops between characters only, so the text can be cut here.
        let before = &self.text[..self.at.min(self.text.len())];
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        JsonError::Syntax {
            expected,
            line: before.bytes().filter(|byte| *byte == b'\n').count() + 1,
            column: before[line_start..].chars().count() + 1,
        }
    }

    fn pointer(&self) -> Pointer {
        Self::pointer_to(&self.open)
    }

    /// A key that is being read is not part of the pointer yet: the object is meant.
    fn pointer_around(&self, within: Within) -> Pointer {
        match within {
            Within::Value => self.pointer(),
            Within::Key => Self::pointer_to(&self.open[..self.open.len().saturating_sub(1)]),
        }
    }

    fn pointer_to(open: &[Open<'a>]) -> Pointer {
        let mut pointer = Pointer::default();
        for place in open {
            match place {
                Open::Array { index } => pointer.push(&index.to_string()),
                Open::Object { key, .. } => pointer.push(key),
            }
        }
        pointer
    }
}
