//! Output of commands: text for people, one JSON value for machines, colours only on a terminal.

use std::io::{IsTerminal, stderr, stdout};

use serde::Serialize;
use serde_json::json;

use crate::{
    exit::{Exit, Failure},
    logging::colours,
};

/// How this run prints.
#[derive(Debug, Clone, Copy)]
pub struct Output {
    json: bool,
    colour: bool,
    terminal: bool,
}

/// The meaning of a coloured word.
#[derive(Debug, Clone, Copy)]
pub enum Tone {
    /// Good.
    Good,
    /// Bad.
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

    /// Is the output for a machine?
    pub const fn is_json(&self) -> bool {
        self.json
    }

    /// Prints the result of a command: `value` as JSON, or the text.
    pub fn answer<T: Serialize>(
        &self,
        value: &T,
        text: impl FnOnce() -> String,
    ) -> Result<(), Failure> {
        let mut line = if self.json {
            serde_json::to_string(value).map_err(|e| {
                Failure::caused(Exit::Failed, "the result can't be written as JSON", &e)
            })?
        } else {
            text()
        };
        if !line.ends_with('\n') {
            line.push('\n');
        }
        super::write_stdout(line.as_bytes())
    }

    /// Prints bytes as they are: a document, a script, a page.
    pub fn bytes(&self, bytes: &[u8]) -> Result<(), Failure> {
        super::write_stdout(bytes)
    }

    /// Prints a line for people; nothing with `--json`.
    pub fn say(&self, line: &str) {
        if !self.json {
            let _ = super::write_stdout(format!("{line}\n").as_bytes());
        }
    }

    /// Is standard error a terminal that can show progress?
    pub fn is_watched(&self) -> bool {
        self.terminal && !self.json
    }

    /// Should progress be printed as lines, because standard error is no terminal?
    pub const fn has_plain_progress(&self) -> bool {
        !self.terminal && !self.json
    }

    /// A word in a colour, if colours are on.
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

    /// A spinner with a message; hidden if standard error is no terminal.
    pub fn spinner(&self, what: &str) -> indicatif::ProgressBar {
        if !self.is_watched() {
            return indicatif::ProgressBar::hidden();
        }
        let bar = indicatif::ProgressBar::new_spinner().with_message(what.to_owned());
        bar.enable_steady_tick(std::time::Duration::from_millis(100));
        bar
    }

    /// A progress bar; hidden if standard error is no terminal.
    pub fn bar(&self, what: &str, length: u64) -> indicatif::ProgressBar {
        if !self.is_watched() {
            return indicatif::ProgressBar::hidden();
        }
        let rate = |state: &indicatif::ProgressState, out: &mut dyn std::fmt::Write| {
            let _ = write!(out, "{:.1}/s", state.per_sec());
        };
        let style =
            indicatif::ProgressStyle::with_template("{msg} {wide_bar} {pos}/{len} {rate} {eta}")
                .unwrap_or_else(|_| indicatif::ProgressStyle::default_bar())
                .with_key("rate", rate);
        indicatif::ProgressBar::new(length)
            .with_style(style)
            .with_message(what.to_owned())
    }

    /// Prints why the command failed, on standard error.
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
