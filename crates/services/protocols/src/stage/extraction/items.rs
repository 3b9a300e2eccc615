//! Splits a section into items: which line starts an item, which continues one, and how they nest.

use super::{
    lines::Line,
    marker::{self, Meaning, Style},
};

/// An item of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    /// Its number, with those of the enclosing items.
    pub number: Option<String>,
    /// Its nesting level, from 0.
    pub level: u8,
    /// Its text, on one line.
    pub text: String,
}

/// Splits the lines of a section into items.
#[must_use]
pub fn split(lines: &[Line]) -> Vec<Item> {
    let marked = lines.iter().any(|line| marker::read(&line.text).is_some());
    let items = if marked {
        listed(lines)
    } else {
        paragraphs(lines)
    };
    items
        .into_iter()
        .flat_map(inline)
        .map(|item| Item {
            text: finish(&item.text),
            ..item
        })
        .filter(|item| item.text.chars().filter(|c| c.is_alphanumeric()).count() > 1)
        .collect()
}

/// A list on the way to the current item.
struct Level {
    style: Style,
    value: u32,
    indent: usize,
    label: String,
}

fn listed(lines: &[Line]) -> Vec<Item> {
    let mut levels: Vec<Level> = Vec::new();
    let mut items: Vec<Item> = Vec::new();
    for line in lines {
        let Some(mark) = marker::read(&line.text) else {
            match items.last_mut() {
                // Text before the first item introduces the list.
                None => {}
                Some(item) if continues(item, line) => join(&mut item.text, &line.text),
                Some(_) => {}
            }
            continue;
        };
        let Some(depth) = place(&mut levels, &mark.meanings, line.indent, items.last()) else {
            // A number that no list expects is part of a sentence.
            if let Some(item) = items.last_mut() {
                join(&mut item.text, &line.text);
            }
            continue;
        };
        if let Some(level) = levels.get_mut(depth) {
            level.label.clone_from(&mark.label);
        }
        items.push(Item {
            number: number(&levels),
            level: u8::try_from(depth).unwrap_or(u8::MAX),
            text: mark.rest.to_owned(),
        });
    }
    items
}

/// Finds the list that a mark belongs to and closes those inside it, or opens a new one. None: it is not a mark.
fn place(
    levels: &mut Vec<Level>,
    meanings: &[Meaning],
    indent: usize,
    last: Option<&Item>,
) -> Option<usize> {
    // In order of preference: the next item of an open list, the first item of a new list, an item after a gap.
    let next = |level: &Level, meaning: &Meaning| match meaning.style {
        Style::Bullet(_) => level.style == meaning.style && level.indent.abs_diff(indent) <= 1,
        _ => level.style == meaning.style && meaning.value == level.value + 1,
    };
    let same = |level: &Level, meaning: &Meaning| match meaning.style {
        Style::Bullet(_) => level.style == meaning.style && level.indent >= indent,
        _ => level.style == meaning.style && meaning.value > level.value,
    };
    for fits in [&next as &dyn Fn(&Level, &Meaning) -> bool, &same] {
        for (depth, level) in levels.iter_mut().enumerate().rev() {
            if let Some(meaning) = meanings.iter().find(|meaning| fits(level, meaning)) {
                level.value = meaning.value;
                level.indent = indent;
                levels.truncate(depth + 1);
                return Some(depth);
            }
        }
        // A new list is likelier than a gap in the numbering.
        if let Some(depth) = open(levels, meanings, indent, last) {
            return Some(depth);
        }
    }
    None
}

fn open(
    levels: &mut Vec<Level>,
    meanings: &[Meaning],
    indent: usize,
    last: Option<&Item>,
) -> Option<usize> {
    let begins = |meaning: &&Meaning| match meaning.style {
        Style::Bullet(_) => true,
        Style::Path(_) => true,
        // A list whose first items are missing is still a list.
        Style::Number(..) => meaning.value == 1 || levels.is_empty(),
        Style::Lower(_) | Style::Upper(_) | Style::Roman(_) => meaning.value == 1,
    };
    let meaning = meanings.iter().find(begins)?;
    // A list of the same style that starts again is a sibling of the old one, not nested in it.
    if let Some(depth) = levels.iter().position(|level| level.style == meaning.style) {
        let deeper = matches!(meaning.style, Style::Bullet(_)) && indent > levels[depth].indent + 1;
        if !deeper {
            levels.truncate(depth);
        }
    }
    if let Style::Path(parent) = &meaning.style {
        // 3.1 is nested in 3; 4.1.1 in section 4.1 is not nested.
        let inside = levels.iter().position(|level| level.label == *parent);
        levels.truncate(inside.map_or(0, |depth| depth + 1));
    } else if !levels.is_empty() {
        let introduced = last.is_some_and(|item| item.text.ends_with(':'));
        let outer = levels.iter().position(|level| level.indent > indent);
        if let (Some(outer), false) = (outer, introduced) {
            levels.truncate(outer);
        }
    }
    levels.push(Level {
        style: meaning.style.clone(),
        value: meaning.value,
        indent,
        label: String::new(),
    });
    Some(levels.len() - 1)
}

/// The numbers from the outermost list to the innermost; a path has them all.
fn number(levels: &[Level]) -> Option<String> {
    let last = levels.last()?;
    if matches!(last.style, Style::Path(_)) {
        return Some(last.label.clone());
    }
    let labels: Vec<&str> = levels
        .iter()
        .map(|level| level.label.as_str())
        .filter(|label| !label.is_empty())
        .collect();
    (!last.label.is_empty()).then(|| labels.join("."))
}

/// Does a line without a mark continue the item before it?
fn continues(item: &Item, line: &Line) -> bool {
    if !line.after_gap {
        return true;
    }
    // After a gap, often a page break, only an incomplete line continues it.
    let first = line.text.chars().next();
    let unfinished = !item.text.ends_with(['.', ';', ':', ')']);
    let small = first.is_some_and(|c| !c.is_uppercase());
    let remark = ["Note", "NOTE", "NB", "Exception", "Except", "For example"];
    small && (unfinished || line.indent > 0)
        || remark.iter().any(|word| line.text.starts_with(word))
}

/// Splits a section without marks: paragraphs, or lines that are short or end a sentence, are items.
fn paragraphs(lines: &[Line]) -> Vec<Item> {
    let widest = lines.iter().map(|line| line.text.len()).max().unwrap_or(0);
    let mut items: Vec<Item> = Vec::new();
    let mut last: Option<&Line> = None;
    for line in lines {
        let begins = last.is_none_or(|last| {
            let finished = last.text.ends_with(['.', ';']);
            let short = last.text.len() * 10 < widest * 7;
            let capital = line
                .text
                .starts_with(|c: char| c.is_uppercase() || "≥≤<>".contains(c));
            line.after_gap || (capital && (finished || short))
        });
        match items.last_mut() {
            Some(item) if !begins => join(&mut item.text, &line.text),
            _ => items.push(Item {
                number: None,
                level: 0,
                text: line.text.clone(),
            }),
        }
        last = Some(line);
    }
    items
        .into_iter()
        .filter(|item| !super::sections::introduces(&item.text))
        .collect()
}

/// "1) adults; 2) consent" on one line is two items.
fn inline(item: Item) -> Vec<Item> {
    // The first of them was read as the whole item.
    if let Some(outer) = outer_of_first(&item) {
        let rest = inline_marks(&item.text, 1);
        return parts(&item, &rest, outer, item.level);
    }
    let marks = inline_marks(&item.text, 0);
    if marks.len() < 2 {
        return vec![item];
    }
    let outer = item.number.clone().unwrap_or_default();
    parts(&item, &marks, &outer, item.level + 1)
}

/// If the item is the first of its list: the number of the enclosing item.
fn outer_of_first(item: &Item) -> Option<&str> {
    let number = item.number.as_deref()?;
    match number.rsplit_once('.') {
        Some((outer, "1" | "a")) => Some(outer),
        None if matches!(number, "1" | "a") => Some(""),
        _ => None,
    }
}

/// The text before the first mark, if any, and one item for each mark.
fn parts(item: &Item, marks: &[(usize, usize, String)], outer: &str, level: u8) -> Vec<Item> {
    let first = marks.first().map_or(item.text.len(), |mark| mark.0);
    let mut items = Vec::with_capacity(marks.len() + 1);
    if first > 0 {
        items.push(Item {
            text: item.text[..first].to_owned(),
            ..item.clone()
        });
    }
    for (index, (_, end, label)) in marks.iter().enumerate() {
        let stop = marks.get(index + 1).map_or(item.text.len(), |next| next.0);
        let number = if outer.is_empty() {
            label.clone()
        } else {
            format!("{outer}.{label}")
        };
        items.push(Item {
            number: Some(number),
            level,
            text: item.text[*end..stop].to_owned(),
        });
    }
    items
}

/// Marks inside a text that continue from the one after `from` without a gap, as 1), 2), 3) or a), b), c): start, end
/// and label of each. A mark inside a text must follow a separator.
fn inline_marks(text: &str, from: u32) -> Vec<(usize, usize, String)> {
    let mut best = Vec::new();
    for (open, first) in [("(", '1'), ("", '1'), ("(", 'a'), ("", 'a')] {
        let mut found = Vec::new();
        let mut at = 0;
        for n in from..50_u32 {
            let label = if first == '1' {
                (n + 1).to_string()
            } else {
                match char::from_u32('a' as u32 + n) {
                    Some(letter) if letter <= 'z' => letter.to_string(),
                    _ => break,
                }
            };
            let mark = format!("{open}{label}) ");
            let Some(begin) = text[at..].find(&mark).map(|found| found + at) else {
                break;
            };
            let before = text[..begin].trim_end();
            let separated = before.is_empty()
                || before.ends_with([';', ',', '.', ':'])
                || before.ends_with(" and")
                || before.ends_with(" or");
            if !separated || (begin > 0 && !text[..begin].ends_with(' ')) {
                break;
            }
            at = begin + mark.len();
            found.push((begin, at, label));
        }
        if found.len() > best.len() {
            best = found;
        }
    }
    best
}

/// Appends a line; after a hyphen at the end of a line, without a space.
fn join(text: &mut String, line: &str) {
    let divided = text.ends_with('-') && !text.ends_with(" -");
    if !divided && !text.is_empty() {
        text.push(' ');
    }
    text.push_str(line);
}

/// Normalizes white space and removes separators at the end.
fn finish(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    let text = words.join(" ");
    let text = text.trim_end_matches([';', ',', ' ']);
    let text = text
        .strip_suffix(" and")
        .or_else(|| text.strip_suffix(" AND"))
        .unwrap_or(text);
    let text = text
        .strip_suffix(" or")
        .or_else(|| text.strip_suffix(" OR"))
        .unwrap_or(text);
    text.trim_end_matches([';', ',', ' ']).to_owned()
}
