//! The vocabulary: standard terms only. `docs/glossary.md` has the terms to use.

use crate::{files, read, with_ending};

/// Words and phrases that were retired, in lower case. An underscore, a hyphen and a capital letter inside a name count as
/// a space, so that `take_in` and `TakeIn` match "take in".
const RETIRED: &[&str] = &[
    "deed",
    "deeds",
    "so many",
    "maniest",
    "is had",
    "be had",
    "laid to rest",
    "whoever",
    "mend",
    "mends",
    "mended",
    "mending",
    "beside",
    "anew",
    "sign of life",
    "signs of life",
    "call backs",
    "as told",
    "doorkeeper",
    "purse",
    "glance",
    "knock",
    "mourn",
    "bury",
    "buried",
    "stands so",
    "stand so",
    "came to nothing",
    "comes to nothing",
    "trouble",
    "house",
    "misbehave",
    "misbehaves",
    "taking in",
    "lets go",
    "called back",
    "hire",
    "judges",
    "town",
    "as it stands",
    "where it stands",
];

/// Names on the wire that keep an old word: they are part of the API, the schema or the configuration.
const WIRE_NAMES: &[&str] = &["postrider_taken_in_total"];

/// The words of a line, each with a space on both sides.
fn words(line: &str) -> String {
    let line = WIRE_NAMES
        .iter()
        .fold(line.to_owned(), |line, name| line.replace(name, " "));
    let mut words = String::from(" ");
    let mut previous = ' ';
    for c in line.chars() {
        let name_part = c.is_uppercase() && previous.is_lowercase();
        if !(c.is_alphanumeric() || c == '\'') || name_part {
            words.push(' ');
        }
        if c.is_alphanumeric() || c == '\'' {
            words.extend(c.to_lowercase());
        }
        previous = c;
    }
    words.push(' ');
    words
        .split_whitespace()
        .fold(String::from(" "), |all, word| all + word + " ")
}

#[test]
fn retired_words_do_not_come_back() {
    let mut hits = Vec::new();
    for ending in [
        "rs", "md", "toml", "sql", "html", "yml", "css", "js", "mjs", "service",
    ] {
        for path in with_ending(ending, files(".")) {
            if path.ends_with("tests/tidy/words.rs") {
                continue;
            }
            for (number, line) in read(&path).lines().enumerate() {
                let words = words(line);
                for retired in RETIRED {
                    if words.contains(&format!(" {retired} ")) {
                        hits.push(format!("{}:{}: {retired}", path.display(), number + 1));
                    }
                }
            }
        }
    }
    assert!(
        hits.is_empty(),
        "{} retired words; docs/glossary.md has the terms to use:\n{}",
        hits.len(),
        hits.join("\n")
    );
}

#[test]
fn names_are_split_into_words() {
    assert_eq!(
        words("fn take_in(x: TakeIn) // can't-be"),
        " fn take in x take in can't be "
    );
}
