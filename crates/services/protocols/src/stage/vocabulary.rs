//! The vocabulary: concepts with a code, a label and synonyms, from a file that users can replace.
//!
//! TSV or CSV with the header `code, label, synonyms`; `|` separates synonyms; lines that start with `#` are comments.
//! Matching ignores case, accents, hyphens, plurals, and British or American spelling. A name of at most five capital
//! letters is an abbreviation, and matches only in capitals.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
};

use unicode_normalization::{UnicodeNormalization, char::is_combining_mark};

/// The built-in vocabulary.
const BUILT_IN: &str = include_str!("../../vocabulary/protocols.tsv");

/// Maximum number of words in a name.
const MAX_NAME_WORDS: usize = 12;

/// One concept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Concept {
    /// Its code.
    pub code: String,
    /// Its name.
    pub label: String,
}

/// Why a vocabulary can't be used.
#[derive(Debug, thiserror::Error)]
pub enum VocabularyError {
    /// The file can't be read.
    #[error("can't read the vocabulary {path}")]
    File {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// A line is malformed.
    #[error("the vocabulary is malformed: {0}")]
    Csv(#[from] csv::Error),
    /// A column is missing.
    #[error(
        "the vocabulary has no column {0:?}; its first line must name code, label and, optionally, synonyms"
    )]
    NoColumn(&'static str),
    /// A value is empty.
    #[error("line {line} of the vocabulary has no {column}")]
    Empty {
        /// The line.
        line: u64,
        /// The column.
        column: &'static str,
    },
    /// It is empty.
    #[error("the vocabulary has no concepts")]
    NoConcepts,
}

/// Concepts, and the names that match them.
#[derive(Debug)]
pub struct Vocabulary {
    concepts: Vec<Concept>,
    /// Names by their first word, longest first.
    names: HashMap<String, Vec<Name>>,
}

#[derive(Debug)]
struct Name {
    words: Vec<String>,
    capitals: bool,
    concept: usize,
}

/// A word of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Word {
    /// The normalized form for comparison.
    pub folded: String,
    /// Are all letters capitals?
    pub capitals: bool,
    /// Its start, in bytes.
    pub start: usize,
    /// Its end, in bytes.
    pub end: usize,
}

impl Vocabulary {
    /// The built-in vocabulary.
    pub fn built_in() -> Result<Self, VocabularyError> {
        Self::read(BUILT_IN.as_bytes(), b'\t')
    }

    /// Reads a file: CSV if it ends in `.csv`, TSV otherwise.
    pub fn open(path: &Path) -> Result<Self, VocabularyError> {
        let bytes = std::fs::read(path).map_err(|source| VocabularyError::File {
            path: path.to_owned(),
            source,
        })?;
        let csv = path
            .extension()
            .is_some_and(|e| e.eq_ignore_ascii_case("csv"));
        Self::read(&bytes, if csv { b',' } else { b'\t' })
    }

    /// Reads a vocabulary from bytes.
    pub fn read(bytes: &[u8], delimiter: u8) -> Result<Self, VocabularyError> {
        let bytes = bytes.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(bytes);
        let mut rows = csv::ReaderBuilder::new()
            .delimiter(delimiter)
            .comment(Some(b'#'))
            .flexible(true)
            .trim(csv::Trim::All)
            .from_reader(bytes);
        let head = rows.headers()?.clone();
        let column = |name: &'static str| {
            let found = head.iter().position(|head| head.eq_ignore_ascii_case(name));
            found.ok_or(VocabularyError::NoColumn(name))
        };
        let (code, label) = (column("code")?, column("label")?);
        let synonyms = column("synonyms").ok();
        let mut vocabulary = Self {
            concepts: Vec::new(),
            names: HashMap::new(),
        };
        for row in rows.records() {
            let row = row?;
            let line = row.position().map_or(0, csv::Position::line);
            let value = |at: usize, column| match row.get(at) {
                Some(value) if !value.is_empty() => Ok(value.to_owned()),
                _ => Err(VocabularyError::Empty { line, column }),
            };
            let concept = Concept {
                code: value(code, "code")?,
                label: value(label, "label")?,
            };
            let synonyms = synonyms.and_then(|at| row.get(at)).unwrap_or_default();
            vocabulary.add(concept, synonyms);
        }
        if vocabulary.concepts.is_empty() {
            return Err(VocabularyError::NoConcepts);
        }
        for names in vocabulary.names.values_mut() {
            // EGFR is not eGFR: names that require capitals come first.
            names.sort_by_key(|name| (std::cmp::Reverse(name.words.len()), !name.capitals));
        }
        Ok(vocabulary)
    }

    fn add(&mut self, concept: Concept, synonyms: &str) {
        let index = self.concepts.len();
        for name in std::iter::once(concept.label.as_str()).chain(synonyms.split('|')) {
            let mut words = words(name);
            words.truncate(MAX_NAME_WORDS);
            let capitals = words.len() == 1 && words[0].capitals && name.trim().len() <= 5;
            let mut folded = words.into_iter().map(|word| word.folded);
            let Some(first) = folded.next() else {
                continue;
            };
            self.names.entry(first).or_default().push(Name {
                words: folded.collect(),
                capitals,
                concept: index,
            });
        }
        self.concepts.push(concept);
    }

    /// The number of concepts.
    #[must_use]
    pub fn len(&self) -> usize {
        self.concepts.len()
    }

    /// Always false: a vocabulary has at least one concept.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.concepts.is_empty()
    }

    /// The concept with the longest name that these words start with, and the number of its words.
    #[must_use]
    pub fn longest(&self, words: &[Word]) -> Option<(&Concept, usize)> {
        let (first, rest) = words.split_first()?;
        let name = self.names.get(&first.folded)?.iter().find(|name| {
            (!name.capitals || first.capitals)
                && name.words.len() <= rest.len()
                && name.words.iter().zip(rest).all(|(a, b)| *a == b.folded)
        })?;
        Some((self.concepts.get(name.concept)?, name.words.len() + 1))
    }
}

/// The words of a text, normalized for comparison.
#[must_use]
pub fn words(text: &str) -> Vec<Word> {
    let mut words = Vec::new();
    let mut start = None;
    let ends = std::iter::once((text.len(), ' '));
    for (at, c) in text.char_indices().chain(ends) {
        match (c.is_alphanumeric() || is_combining_mark(c), start) {
            (true, None) => start = Some(at),
            (false, Some(from)) => {
                let word = &text[from..at];
                words.push(Word {
                    folded: fold(word),
                    capitals: word.chars().any(char::is_alphabetic)
                        && !word.chars().any(char::is_lowercase),
                    start: from,
                    end: at,
                });
                start = None;
            }
            (true, Some(_)) | (false, None) => {}
        }
    }
    words
}

/// British and American spellings; the first becomes the second.
const SPELLINGS: [(&str, &str); 12] = [
    ("haem", "hem"),
    ("aemi", "emi"),
    ("oedema", "edema"),
    ("oesoph", "esoph"),
    ("oestr", "estr"),
    ("tumour", "tumor"),
    ("rrhoea", "rrhea"),
    ("paed", "ped"),
    ("leuk", "leuc"),
    ("isation", "ization"),
    ("foet", "fet"),
    ("anaes", "anes"),
];

/// Normalizes a word: lower case, no accents, American spelling, singular.
fn fold(word: &str) -> String {
    let mut folded: String = word
        .nfkd()
        .filter(|c| !is_combining_mark(*c))
        .flat_map(char::to_lowercase)
        .collect();
    for (from, to) in SPELLINGS {
        if folded.contains(from) {
            folded = folded.replace(from, to);
        }
    }
    singular(&mut folded);
    folded
}

fn singular(word: &mut String) {
    if word.len() <= 3 || !word.is_ascii() {
        return;
    }
    if word.ends_with("ies") {
        word.truncate(word.len() - 3);
        word.push('y');
    } else if word.ends_with("stases")
        || word.ends_with("yses")
        || (word.len() > 6 && word.ends_with("oses"))
    {
        // metastases, thromboses, analyses: like their singular, which ends in -sis
        word.truncate(word.len() - 2);
        word.push_str("is");
    } else if word.ends_with('s') && !["ss", "us", "is"].iter().any(|end| word.ends_with(end)) {
        word.pop();
    }
}
