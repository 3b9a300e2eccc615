//! The lines of a document without page furniture: running heads, page numbers, tables of contents.

use std::collections::HashMap;

/// A line of the document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// Its text, trimmed.
    pub text: String,
    /// Its indentation.
    pub indent: usize,
    /// Is there an empty line before it?
    pub after_gap: bool,
}

/// Reads the lines that belong to the text.
#[must_use]
pub fn read(text: &str) -> Vec<Line> {
    let raw: Vec<String> = text.lines().map(normalize).collect();
    let repeated = repetitions(&raw);
    let mut lines = Vec::new();
    let mut gap = true;
    for line in raw {
        let words = line.trim();
        if words.is_empty() {
            gap = true;
            continue;
        }
        if is_page_matter(words, &repeated) || is_contents(words) {
            continue;
        }
        lines.push(Line {
            indent: line.chars().take_while(|c| *c == ' ').count(),
            text: words.to_owned(),
            after_gap: gap,
        });
        gap = false;
    }
    lines
}

/// Normalizes white space and ligatures, and removes Markdown emphasis.
fn normalize(line: &str) -> String {
    let mut normalized = String::with_capacity(line.len());
    for c in line.trim_end().chars() {
        match c {
            '\t' => normalized.push_str("    "),
            '\u{AD}' | '\u{200B}' | '\u{FEFF}' => {}
            'ﬁ' => normalized.push_str("fi"),
            'ﬂ' => normalized.push_str("fl"),
            'ﬀ' => normalized.push_str("ff"),
            'ﬃ' => normalized.push_str("ffi"),
            'ﬄ' => normalized.push_str("ffl"),
            c if c.is_whitespace() => normalized.push(' '),
            c => normalized.push(c),
        }
    }
    if normalized.contains("**") {
        normalized = normalized.replace("**", "");
    }
    normalized
}

/// The line with every number as `#`: the same on every page.
fn shape(line: &str) -> String {
    let mut shape = String::with_capacity(line.len());
    for word in line.split_whitespace() {
        if !shape.is_empty() {
            shape.push(' ');
        }
        let mut digits = false;
        for c in word.chars() {
            if c.is_ascii_digit() {
                if !digits {
                    shape.push('#');
                }
                digits = true;
            } else {
                digits = false;
                shape.extend(c.to_lowercase());
            }
        }
    }
    shape
}

fn repetitions(lines: &[String]) -> HashMap<String, usize> {
    let mut count = HashMap::new();
    for line in lines.iter().filter(|line| line.len() < 160) {
        *count.entry(shape(line)).or_default() += 1;
    }
    count
}

/// Running heads and feet, and page numbers.
fn is_page_matter(line: &str, repeated: &HashMap<String, usize>) -> bool {
    let shape = shape(line);
    let bare = shape.trim_matches(|c: char| !c.is_alphanumeric() && c != '#');
    if matches!(bare, "page #" | "page # of #" | "# of #" | "p. #") {
        return true;
    }
    // A number on its own line is usually a page number.
    if matches!(shape.as_str(), "#" | "- # -" | "– # –" | "#/#" | "# / #") {
        return true;
    }
    let times = repeated.get(&shape).copied().unwrap_or(0);
    let page_words = [
        "confidential",
        "page #",
        "version #",
        "protocol no",
        "protocol number",
    ];
    let is_item = super::marker::read(line).is_some();
    let of_page = page_words.iter().any(|word| shape.contains(word));
    !is_item && ((times >= 2 && of_page) || (times >= 4 && !shape.contains("criteria")))
}

/// A line of a table of contents ends with dots and a page number.
fn is_contents(line: &str) -> bool {
    let end = line.trim_end_matches(|c: char| c.is_ascii_digit() || c == ' ');
    end.len() < line.len()
        && (end.ends_with("....") || end.ends_with(". . .") || end.ends_with("……"))
}

#[cfg(test)]
mod tests {
    use super::read;

    #[test]
    fn page_furniture_is_removed() {
        let text = "Protocol X-1   Confidential\nPage 1 of 9\n4.1 Inclusion criteria ........ 11\n\n  1. Adults\n\
                    Protocol X-1   Confidential\nPage 2 of 9\n12\n2. Con\u{AD}sent ﬁle";
        let texts: Vec<String> = read(text).into_iter().map(|line| line.text).collect();
        assert_eq!(texts, ["1. Adults", "2. Consent file"]);
    }

    #[test]
    fn indents_and_gaps_are_kept() {
        let lines = read("A\n\n   B\n\tC");
        let seen: Vec<_> = lines.iter().map(|l| (l.indent, l.after_gap)).collect();
        assert_eq!(seen, [(0, true), (3, true), (4, false)]);
    }
}
