//! The vocabulary: concepts with a code, a label and other names, from a file that a user can replace.
//!
//! TSV or CSV with a first line `code, label, synonyms`; synonyms are separated by `|`; lines that begin with `#` are
//! remarks. Spelling is forgiving: case, accents, hyphens, plurals, British and American forms make no difference. A name
//! in capitals of at most five letters is an abbreviation and found in capitals alone.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
};

use unicode_normalization::{UnicodeNormalization, char::is_combining_mark};

/// The vocabulary that comes with the program.
const OURS: &str = include_str!("../../vocabulary/protocols.tsv");

/// No name has more words.
const LONGEST_NAME: usize = 12;

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
pub enum Unusable {
    /// The file can't be read.
    #[error("the vocabulary {path} can't be read")]
    File {
        /// Where.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// A line is wrong.
    #[error("the vocabulary is wrong: {0}")]
    Csv(#[from] csv::Error),
    /// A column is missing.
    #[error(
        "the vocabulary has no column {0:?}; its first line names code, label and, if wanted, synonyms"
    )]
    NoColumn(&'static str),
    /// A line says nothing.
    #[error("line {line} of the vocabulary has no {column}")]
    Empty {
        /// Which line.
        line: u64,
        /// What is missing.
        column: &'static str,
    },
    /// There is nothing in it.
    #[error("the vocabulary has no concepts")]
    NoConcepts,
}

/// Concepts and the names that they are found by.
#[derive(Debug)]
pub struct Vocabulary {
    concepts: Vec<Concept>,
    /// By the first word: the words that follow, whether capitals are asked for, and the concept. The longest first.
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
    /// As it is compared.
    pub folded: String,
    /// All letters are capitals.
    pub capitals: bool,
    /// Where it begins.
    pub start: usize,
    /// Where it ends.
    pub end: usize,
}

impl Vocabulary {
    /// The one that comes with the program.
    pub fn ours() -> Result<Self, Unusable> {
        Self::read(OURS.as_bytes(), b'\t')
    }

    /// The one in this file: CSV if its name says so, TSV otherwise.
    pub fn open(path: &Path) -> Result<Self, Unusable> {
        let bytes = std::fs::read(path).map_err(|source| Unusable::File {
            path: path.to_owned(),
            source,
        })?;
        let csv = path
            .extension()
            .is_some_and(|e| e.eq_ignore_ascii_case("csv"));
        Self::read(&bytes, if csv { b',' } else { b'\t' })
    }

    /// The one in these bytes.
    pub fn read(bytes: &[u8], delimiter: u8) -> Result<Self, Unusable> {
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
            found.ok_or(Unusable::NoColumn(name))
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
                _ => Err(Unusable::Empty { line, column }),
            };
            let concept = Concept {
                code: value(code, "code")?,
                label: value(label, "label")?,
            };
            let others = synonyms.and_then(|at| row.get(at)).unwrap_or_default();
            vocabulary.add(concept, others);
        }
        if vocabulary.concepts.is_empty() {
            return Err(Unusable::NoConcepts);
        }
        for names in vocabulary.names.values_mut() {
            // EGFR is not eGFR: who asks for capitals is asked first.
            names.sort_by_key(|name| (std::cmp::Reverse(name.words.len()), !name.capitals));
        }
        Ok(vocabulary)
    }

    fn add(&mut self, concept: Concept, others: &str) {
        let index = self.concepts.len();
        for name in std::iter::once(concept.label.as_str()).chain(others.split('|')) {
            let mut words = words(name);
            words.truncate(LONGEST_NAME);
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

    /// How many concepts it has.
    #[must_use]
    pub fn len(&self) -> usize {
        self.concepts.len()
    }

    /// It never is: a vocabulary without concepts can't be read.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.concepts.is_empty()
    }

    /// The concept whose longest name begins these words, and how many words it takes.
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

/// The words of a text as they are compared.
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

/// Pairs of spellings; the first becomes the second.
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

/// Small letters without accents, American, singular.
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
