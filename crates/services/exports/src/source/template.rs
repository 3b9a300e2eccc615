//! A query with placeholders, filled with literals: COPY takes no parameters.
//!
//! Placeholders inside strings, quoted names and comments are left alone. A value becomes an untyped literal, so the query
//! decides whether it is compared with a date, a number or a text.

/// A parsed query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template {
    pieces: Vec<Piece>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Text(String),
    Value(usize),
}

/// Why a query can't be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    /// There is no query.
    #[error(
        "must be a query, such as select … where index_key = $1 and day = $2 and indicator = $3"
    )]
    Empty,
    /// An unknown placeholder.
    #[error(
        "has the unknown placeholder ${0}; the placeholders are $1 (index key), $2 (date) and $3 (indicator)"
    )]
    UnknownValue(String),
    /// An unterminated string, name or comment.
    #[error("ends inside {0}")]
    Unfinished(&'static str),
    /// More than one statement.
    #[error("must be one statement, but there is text after the semicolon")]
    Several,
}

impl Template {
    /// Parses a query.
    pub fn parse(query: &str) -> Result<Self, TemplateError> {
        let query = query.trim().trim_end_matches(';').trim_end();
        if query.is_empty() {
            return Err(TemplateError::Empty);
        }
        let mut pieces = Vec::new();
        let mut text = String::new();
        let mut rest = query;
        while let Some(first) = rest.chars().next() {
            let length = match first {
                '\'' => {
                    let escapes = text.ends_with(['e', 'E']) && !is_word(text.chars().rev().nth(1));
                    quoted(rest, '\'', escapes).ok_or(TemplateError::Unfinished("a string"))?
                }
                '"' => {
                    quoted(rest, '"', false).ok_or(TemplateError::Unfinished("a quoted name"))?
                }
                '-' if rest.starts_with("--") => rest.find('\n').unwrap_or(rest.len()),
                '/' if rest.starts_with("/*") => {
                    comment(rest).ok_or(TemplateError::Unfinished("a comment"))?
                }
                ';' => return Err(TemplateError::Several),
                '$' if !is_word(text.chars().next_back()) => match dollar(rest)? {
                    Dollar::Value(number, length) => {
                        pieces.push(Piece::Text(std::mem::take(&mut text)));
                        pieces.push(Piece::Value(number));
                        rest = &rest[length..];
                        continue;
                    }
                    Dollar::Text(length) => length,
                },
                other => other.len_utf8(),
            };
            text.push_str(&rest[..length]);
            rest = &rest[length..];
        }
        // Otherwise a comment at the end would hide what follows the query.
        text.push('\n');
        pieces.push(Piece::Text(text));
        Ok(Self { pieces })
    }

    /// The query with these values.
    #[must_use]
    pub fn fill(&self, values: [&str; 3]) -> String {
        let mut query = String::new();
        for piece in &self.pieces {
            match piece {
                Piece::Text(text) => query.push_str(text),
                Piece::Value(number) => query.push_str(&literal(values[*number])),
            }
        }
        query
    }
}

/// A string literal that PostgreSQL reads the same under any setting of `standard_conforming_strings`.
fn literal(value: &str) -> String {
    let doubled = value.replace('\'', "''");
    if value.contains('\\') {
        return format!(" E'{}'", doubled.replace('\\', "\\\\"));
    }
    format!("'{doubled}'")
}

fn is_word(c: Option<char>) -> bool {
    c.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == '$')
}

/// The length of a quoted text including its quotes; a doubled quote doesn't end it.
fn quoted(text: &str, quote: char, escapes: bool) -> Option<usize> {
    let mut chars = text.char_indices().skip(1).peekable();
    while let Some((at, c)) = chars.next() {
        if escapes && c == '\\' {
            chars.next();
        } else if c == quote && chars.next_if(|(_, next)| *next == quote).is_none() {
            return Some(at + c.len_utf8());
        }
    }
    None
}

/// The length of a comment; comments nest.
fn comment(text: &str) -> Option<usize> {
    let (mut depth, mut at) = (0, 0);
    while at < text.len() {
        let rest = text.get(at..).unwrap_or_default();
        if rest.starts_with("/*") {
            depth += 1;
            at += 2;
        } else if rest.starts_with("*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return Some(at);
            }
        } else {
            at += rest.chars().next().map_or(1, char::len_utf8);
        }
    }
    None
}

enum Dollar {
    Value(usize, usize),
    Text(usize),
}

/// A placeholder, or a dollar-quoted string.
fn dollar(text: &str) -> Result<Dollar, TemplateError> {
    let after = &text[1..];
    let digits: String = after.chars().take_while(char::is_ascii_digit).collect();
    if !digits.is_empty() {
        return match digits.as_str() {
            "1" | "2" | "3" => Ok(Dollar::Value(usize::from(digits.as_bytes()[0] - b'1'), 2)),
            _ => Err(TemplateError::UnknownValue(digits)),
        };
    }
    let tag: String = after
        .chars()
        .take_while(|c| c.is_alphanumeric() || *c == '_')
        .collect();
    if !after[tag.len()..].starts_with('$') {
        return Ok(Dollar::Text(1));
    }
    let fence = format!("${tag}$");
    let body = &text[fence.len()..];
    let end = body
        .find(&fence)
        .ok_or(TemplateError::Unfinished("a dollar-quoted string"))?;
    Ok(Dollar::Text(end + 2 * fence.len()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn filled(query: &str) -> String {
        let filled = Template::parse(query)
            .unwrap()
            .fill(["A'B", "20240202", "C\\S"]);
        filled.trim_end().to_owned()
    }

    #[test]
    fn values_become_properly_quoted_literals() {
        assert_eq!(
            filled("select * from f($1,$2, $3::text);"),
            "select * from f('A''B','20240202',  E'C\\\\S'::text)"
        );
    }

    #[test]
    fn placeholders_in_strings_names_and_comments_are_left_alone() {
        for query in [
            "select '$1', 'it''s $2'",
            "select E'\\'$1'",
            "select \"$1\"\"$2\"",
            "select 1 -- $1",
            "select /* $1 /* $2 */ $3 */ 1",
            "select $$ $1 $$, $x$ $$ $1 $x$",
            "select a$1 from t",
        ] {
            assert_eq!(filled(query), query);
        }
    }

    #[test]
    fn invalid_queries_are_rejected() {
        for wrong in [
            "",
            " ; ",
            "select $4",
            "select $10",
            "select 'x",
            "select 1; select 2",
            "select /* 1",
            "select $a$ x",
        ] {
            assert!(Template::parse(wrong).is_err(), "{wrong}");
        }
    }
}
