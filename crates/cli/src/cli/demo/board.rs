//! What the audience sees: a bar for each service on a terminal, and lines of what happens.

use std::{
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

use super::acts::Glance;
use crate::cli::output::{Output, Tone};

/// Where there is no terminal, a line this often says how far it is.
const EVERY: Duration = Duration::from_secs(5);

/// The board.
pub struct Board {
    output: Output,
    began: Instant,
    bars: MultiProgress,
    lines: Mutex<Lines>,
}

#[derive(Default)]
struct Lines {
    bars: Vec<ProgressBar>,
    said: Option<Instant>,
}

impl Board {
    /// An empty board.
    pub fn new(output: Output) -> Self {
        Self {
            output,
            began: Instant::now(),
            bars: MultiProgress::new(),
            lines: Mutex::default(),
        }
    }

    /// How answers are given.
    pub const fn output(&self) -> &Output {
        &self.output
    }

    /// Something happened.
    pub fn say(&self, word: &str, what: &str) {
        let time = format!("{:>5.1} s", self.began.elapsed().as_secs_f64());
        let time = self.output.paint(Tone::Dim, &time);
        let line = format!("{time}  {word:<10} {what}");
        self.bars.suspend(|| self.output.say(&line));
    }

    /// So far it is.
    pub fn show(&self, glances: &[Glance]) {
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        if self.output.is_watched() {
            for glance in glances.iter().skip(lines.bars.len()) {
                lines.bars.push(self.bars.add(bar(glance)));
            }
            for (bar, glance) in lines.bars.iter().zip(glances) {
                bar.set_position(glance.done);
                bar.set_message(message(glance));
            }
        } else if lines.said.get_or_insert_with(Instant::now).elapsed() >= EVERY {
            lines.said = Some(Instant::now());
            drop(lines);
            let part = |glance: &Glance| format!("{} {}", glance.done, glance.name);
            let all: Vec<String> = glances.iter().map(part).collect();
            self.say("so far", &format!("done: {}", all.join(", ")));
        }
    }

    /// The bars go; the lines stay.
    pub fn clear(&self) {
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        for bar in lines.bars.drain(..) {
            bar.finish_and_clear();
            self.bars.remove(&bar);
        }
    }
}

fn bar(glance: &Glance) -> ProgressBar {
    let template = "  {prefix:<9} {bar:30} {pos:>4}/{len:<4} {msg}";
    let style =
        ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(glance.planned)
        .with_style(style)
        .with_prefix(glance.name)
        .with_message(message(glance))
}

fn message(glance: &Glance) -> String {
    let Glance {
        accepted,
        retried,
        dead,
        ..
    } = glance;
    format!("accepted {accepted:>4}  retried {retried:>3}  dead {dead}")
}
