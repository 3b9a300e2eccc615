//! The first pass: one scan of the text that keeps only the keys of open objects.

use std::borrow::Cow;
use std::collections::HashSet;

use super::error::Location;
use super::pointer::Pointer;
use super::{JsonError, Limits, MAX_DEPTH, number};

/// Rejects text that is not JSON or not allowed.
pub(super) fn scan(text: &str, limits: &Limits) -> Result<(), JsonError> {
    let mut scanner = Scanner {
        text,
        at: 0,
        open: Vec::new(),
        max_depth: limits.max_depth.min(MAX_DEPTH),
        allow_inexact_numbers: limits.allow_inexact_numbers,
    };
    scanner.document()
}

/// An array or object that is not closed yet.
enum Container<'a> {
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
    open: Vec<Container<'a>>,
    max_depth: usize,
    allow_inexact_numbers: bool,
}

impl<'a> Scanner<'a> {
    fn document(&mut self) -> Result<(), JsonError> {
        loop {
            self.skip_space();
            // A non-empty array or object was opened: its first value comes next.
            if self.value()? {
                continue;
            }
            // A value has ended: close its containers, or go on to the next value.
            loop {
                self.skip_space();
                let next = self.peek();
                match (self.open.last_mut(), next) {
                    (None, None) => return Ok(()),
                    (None, Some(_)) => return Err(self.syntax("expected the end of the text")),
                    (Some(Container::Array { index }), Some(b',')) => {
                        *index += 1;
                        self.at += 1;
                        break;
                    }
                    (Some(Container::Object { .. }), Some(b',')) => {
                        self.at += 1;
                        self.skip_space();
                        self.key()?;
                        break;
                    }
                    (Some(Container::Array { .. }), Some(b']'))
                    | (Some(Container::Object { .. }), Some(b'}')) => {
                        self.at += 1;
                        self.open.pop();
                    }
                    (Some(Container::Array { .. }), _) => {
                        return Err(self.syntax("expected `,` or `]`"));
                    }
                    (Some(Container::Object { .. }), _) => {
                        return Err(self.syntax("expected `,` or `}`"));
                    }
                }
            }
        }
    }

    /// Reads a scalar or an empty container and returns false, or opens a non-empty container and returns true: its first value
    /// comes next.
    fn value(&mut self) -> Result<bool, JsonError> {
        match self.peek() {
            Some(b'{') => {
                self.enter(Container::Object {
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
                self.enter(Container::Array { index: 0 })?;
                Ok(!self.leave_if(b']'))
            }
            Some(b'"') => self.string(Location::Value).map(|_| false),
            Some(b'-' | b'0'..=b'9') => self.number().map(|()| false),
            Some(b't') => self.literal("true"),
            Some(b'f') => self.literal("false"),
            Some(b'n') => self.literal("null"),
            _ => Err(self.syntax("expected a value")),
        }
    }

    fn enter(&mut self, container: Container<'a>) -> Result<(), JsonError> {
        if self.open.len() >= self.max_depth {
            return Err(JsonError::TooDeep {
                pointer: self.pointer(),
                limit: self.max_depth,
            });
        }
        self.open.push(container);
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
        let name = self.string(Location::Key)?;
        let Some(Container::Object { key, seen }) = self.open.last_mut() else {
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

    /// Reads a string. Returns its value for keys, allocating only if there are escapes; an empty string for values.
    fn string(&mut self, location: Location) -> Result<Cow<'a, str>, JsonError> {
        self.at += 1;
        let mut start = self.at;
        let mut value = Cow::Borrowed("");
        let keep = location == Location::Key;
        loop {
            match self.peek() {
                Some(b'"') => {
                    if keep {
                        value += &self.text[start..self.at];
                    }
                    self.at += 1;
                    return Ok(value);
                }
                Some(b'\\') => {
                    if keep {
                        value += &self.text[start..self.at];
                    }
                    let character = self.escape(location)?;
                    if keep {
                        value.to_mut().push(character);
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

    fn escape(&mut self, location: Location) -> Result<char, JsonError> {
        self.at += 1;
        let plain = match self.peek() {
            Some(quoted @ (b'"' | b'\\' | b'/')) => char::from(quoted),
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => return self.unicode_escape(location),
            _ => return Err(self.syntax("invalid escape sequence")),
        };
        self.at += 1;
        Ok(plain)
    }

    fn unicode_escape(&mut self, location: Location) -> Result<char, JsonError> {
        let first = self.hex4()?;
        if first == 0 {
            let pointer = self.pointer_of(location);
            return Err(JsonError::Nul { location, pointer });
        }
        if let Some(character) = char::from_u32(first) {
            return Ok(character);
        }
        // A surrogate: it must be a high one, followed by its low one.
        if first < 0xDC00 && self.text[self.at..].starts_with("\\u") {
            self.at += 1;
            let second = self.hex4()?;
            if (0xDC00..0xE000).contains(&second) {
                let joined = 0x1_0000 + ((first - 0xD800) << 10) + (second - 0xDC00);
                return Ok(char::from_u32(joined).unwrap_or(char::REPLACEMENT_CHARACTER));
            }
        }
        let pointer = self.pointer_of(location);
        Err(JsonError::LoneSurrogate { location, pointer })
    }

    /// Reads `uXXXX`, positioned at the `u`.
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
        if !self.allow_inexact_numbers && !number::is_exact(&self.text[start..self.at]) {
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
        // The scanner only stops between characters, so slicing here is safe.
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

    /// The position of a string; for a key, its object.
    fn pointer_of(&self, location: Location) -> Pointer {
        match location {
            Location::Value => self.pointer(),
            Location::Key => Self::pointer_to(&self.open[..self.open.len().saturating_sub(1)]),
        }
    }

    fn pointer_to(open: &[Container<'a>]) -> Pointer {
        let mut pointer = Pointer::default();
        for container in open {
            match container {
                Container::Array { index } => pointer.push(&index.to_string()),
                Container::Object { key, .. } => pointer.push(key),
            }
        }
        pointer
    }
}
