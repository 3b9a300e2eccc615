//! How a command answers: text for people, one JSON value for machines, colours on a terminal alone.

use std::io::{IsTerminal, stderr, stdout};

use serde::Serialize;
use serde_json::json;

use crate::{
    exit::{Exit, Failure},
    logging::colours,
};

/// The way answers are given in this run.
#[derive(Debug, Clone, Copy)]
pub struct Output {
    json: bool,
    colour: bool,
    terminal: bool,
}

/// How a word is meant.
#[derive(Debug, Clone, Copy)]
pub enum Tone {
    /// As hoped.
    Good,
    /// Not as hoped.
    Bad,
    /// Less important.
    Dim,
}

impl Output {
    /// Text or JSON; colours and progress bars as the streams allow.
    pub fn new(json: bool) -> Self {
        Self {
            json,
            colour: !json && colours(&stdout()),
            terminal: stderr().is_terminal(),
        }
    }

    /// Is the answer for a machine?
    pub const fn is_json(&self) -> bool {
        self.json
    }

    /// The answer of a command: `value` as JSON, or the text.
    pub fn answer<T: Serialize>(
        &self,
        value: &T,
        text: impl FnOnce() -> String,
    ) -> Result<(), Failure> {
        let mut line = if self.json {
            serde_json::to_string(value).map_err(|e| {
                Failure::caused(Exit::Failed, "the answer can't be written as JSON", &e)
            })?
        } else {
            text()
        };
        if !line.ends_with('\n') {
            line.push('\n');
        }
        super::write_stdout(line.as_bytes())
    }

    /// Bytes as they are: a document, a script, a page.
    pub fn bytes(&self, bytes: &[u8]) -> Result<(), Failure> {
        super::write_stdout(bytes)
    }

    /// A line about what is going on, for a person who watches; nothing with `--json`.
    pub fn say(&self, line: &str) {
        if !self.json {
            let _ = super::write_stdout(format!("{line}\n").as_bytes());
        }
    }

    /// Does a person watch, at a terminal that can show progress?
    pub fn is_watched(&self) -> bool {
        self.terminal && !self.json
    }

    /// A word in a colour, where there are colours.
    pub fn paint(&self, tone: Tone, word: &str) -> String {
        if !self.colour {
            return word.to_owned();
        }
        let code = match tone {
            Tone::Good => "32",
            Tone::Bad => "31",
            Tone::Dim => "2",
        };
        format!("\x1b[{code}m{word}\x1b[0m")
    }

    /// A spinner with a word beside it while something takes long; silent when nobody watches.
    pub fn spinner(&self, what: &str) -> indicatif::ProgressBar {
        if !self.is_watched() {
            return indicatif::ProgressBar::hidden();
        }
        let bar = indicatif::ProgressBar::new_spinner().with_message(what.to_owned());
        bar.enable_steady_tick(std::time::Duration::from_millis(100));
        bar
    }

    /// A progress bar over so many things; silent when nobody watches.
    pub fn bar(&self, what: &str, length: u64) -> indicatif::ProgressBar {
        if !self.is_watched() {
            return indicatif::ProgressBar::hidden();
        }
        let style =
            indicatif::ProgressStyle::with_template("{msg} {wide_bar} {pos}/{len} {per_sec} {eta}")
                .unwrap_or_else(|_| indicatif::ProgressStyle::default_bar());
        indicatif::ProgressBar::new(length)
            .with_style(style)
            .with_message(what.to_owned())
    }

    /// Why the command failed, on standard error.
    pub fn failure(&self, failure: &Failure) {
        if self.json {
            let error = json!({ "error": { "code": failure.code(), "message": failure.message } });
            eprintln!("{error}");
        } else if colours(&stderr()) {
            eprintln!("\x1b[31merror\x1b[0m: {failure}");
        } else {
            eprintln!("error: {failure}");
        }
    }
}
