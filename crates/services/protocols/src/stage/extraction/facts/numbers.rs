//! Splits a text into words, numbers and signs.

/// A piece of text.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Piece<'a> {
    /// A word, as it is written.
    Word(&'a str),
    /// A number.
    Number(f64),
    /// Any other character.
    Sign(char),
}

/// A piece and its position.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Token<'a> {
    pub piece: Piece<'a>,
    pub start: usize,
    pub end: usize,
}

impl Token<'_> {
    pub fn is_word(&self, word: &str) -> bool {
        matches!(self.piece, Piece::Word(found) if found.eq_ignore_ascii_case(word))
    }

    pub fn is_sign(&self, sign: char) -> bool {
        self.piece == Piece::Sign(sign)
    }

    pub fn number(&self) -> Option<f64> {
        match self.piece {
            Piece::Number(number) => Some(number),
            Piece::Word(word) => named(word),
            Piece::Sign(_) => None,
        }
    }
}

/// Numbers that are often written as words.
fn named(word: &str) -> Option<f64> {
    const NAMES: [&str; 13] = [
        "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten",
        "eleven", "twelve",
    ];
    if word.eq_ignore_ascii_case("eighteen") {
        return Some(18.0);
    }
    let at = NAMES
        .iter()
        .position(|name| word.eq_ignore_ascii_case(name))?;
    u8::try_from(at).ok().map(f64::from)
}

/// Splits a text into tokens.
pub(super) fn tokens(text: &str) -> Vec<Token<'_>> {
    let mut tokens = Vec::new();
    let mut rest = text.char_indices().peekable();
    while let Some((start, c)) = rest.next() {
        if c.is_whitespace() {
            continue;
        }
        let mut end = start + c.len_utf8();
        if c.is_ascii_digit() {
            while let Some(&(at, next)) = rest.peek() {
                let decimal = matches!(next, '.' | ',')
                    && text[at + 1..].starts_with(|c: char| c.is_ascii_digit());
                if !next.is_ascii_digit() && !decimal {
                    break;
                }
                end = at + next.len_utf8();
                rest.next();
            }
            let piece =
                read(&text[start..end]).map_or(Piece::Word(&text[start..end]), Piece::Number);
            tokens.push(Token { piece, start, end });
            continue;
        }
        if c.is_alphabetic() {
            while let Some(&(at, next)) = rest.peek() {
                // "HbA1c" and "FEV1" are words; "PD-1" is a word, a sign and a number.
                if !next.is_alphanumeric() {
                    break;
                }
                end = at + next.len_utf8();
                rest.next();
            }
            let piece = Piece::Word(&text[start..end]);
            tokens.push(Token { piece, start, end });
            continue;
        }
        let piece = Piece::Sign(c);
        tokens.push(Token { piece, start, end });
    }
    tokens
}

/// `1,500` is fifteen hundred, `1,5` is one and a half.
fn read(text: &str) -> Option<f64> {
    let thousands = text.contains(',')
        && text.split(',').skip(1).all(|group| {
            let whole = group.split('.').next().unwrap_or(group);
            whole.len() == 3
        });
    if thousands {
        return text.replace(',', "").parse().ok();
    }
    text.replace(',', ".").parse().ok()
}
