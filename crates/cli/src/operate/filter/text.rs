//! From a line to words and back.

use super::FilterError;

/// A word: `name:value`, or a value alone.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Word {
    pub name: Option<String>,
    pub value: String,
}

/// Splits a line. A name consists of letters and precedes a colon, outside quotes.
pub(super) fn words(line: &str) -> Result<Vec<Word>, FilterError> {
    let mut words = Vec::new();
    let mut rest = line.trim_start();
    while !rest.is_empty() {
        let name = name(rest);
        let after = name.map_or(rest, |name| &rest[name.len() + 1..]);
        let (value, left) = value(after)?;
        if value.is_empty() {
            let problem = match name {
                Some(_) => "has no value",
                None => "is empty; write something between the quotes",
            };
            return Err(FilterError::new(
                name.map_or_else(|| "\"\"".to_owned(), |name| format!("{name}:")),
                problem,
            ));
        }
        words.push(Word {
            name: name.map(str::to_owned),
            value,
        });
        rest = left.trim_start();
    }
    Ok(words)
}

fn name(rest: &str) -> Option<&str> {
    let (name, _) = rest.split_once(':')?;
    (!name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphabetic())).then_some(name)
}

/// A value in quotes, or up to the next space; and what follows it.
fn value(rest: &str) -> Result<(String, &str), FilterError> {
    let Some(quoted) = rest.strip_prefix('"') else {
        let end = rest.find(char::is_whitespace).unwrap_or(rest.len());
        return Ok((rest[..end].to_owned(), &rest[end..]));
    };
    let mut value = String::new();
    let mut chars = quoted.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Ok((value, &quoted[at + 1..])),
            '\\' => match chars.next() {
                Some((_, c @ ('"' | '\\'))) => value.push(c),
                Some((_, c)) => value.extend(['\\', c]),
                None => break,
            },
            c => value.push(c),
        }
    }
    Err(FilterError::new(rest, "has no closing quote"))
}

/// In quotes where it needs them.
pub(super) fn quote(value: &str) -> String {
    let plain = !value.is_empty() && !value.contains(|c: char| c.is_whitespace() || c == '"');
    if plain {
        value.to_owned()
    } else {
        quoted(value)
    }
}

/// In quotes.
pub(super) fn quoted(value: &str) -> String {
    format!("\"{}\"", value.replace('\\', "\\\\").replace('"', "\\\""))
}
