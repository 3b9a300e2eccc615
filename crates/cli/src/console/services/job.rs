//! A job as a row of a page, whatever the service.

use postrider_web::{Limit, Page, Problem};
use serde::Serialize;

use super::super::format::{self, When};

/// What a state means to an operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum Tone {
    /// Ended well.
    Good,
    /// Somebody works on it.
    Busy,
    /// Will be worked on.
    Waiting,
    /// Somebody should look.
    Bad,
    /// Ended, and nobody need look.
    Quiet,
}

impl Tone {
    /// The class in the style.
    pub const fn class(self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::Busy => "busy",
            Self::Waiting => "waiting",
            Self::Bad => "bad",
            Self::Quiet => "quiet",
        }
    }
}

/// How far a job has come, as a bar.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) struct Bar {
    pub done: i64,
    pub failed: i64,
    pub total: i64,
}

impl Bar {
    /// Hundredths of the whole.
    fn part(&self, of: i64) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "a width on a screen")]
        let part = of as f64 * 100.0 / self.total.max(1) as f64;
        (part.clamp(0.0, 100.0) * 10.0).round() / 10.0
    }

    pub fn done_width(&self) -> f64 {
        self.part(self.done)
    }

    pub fn failed_width(&self) -> f64 {
        self.part(self.failed)
    }

    /// In words, for those who don't see it.
    pub fn words(&self) -> String {
        let of = format!(
            "{} of {}",
            format::count(self.done),
            format::count(self.total)
        );
        match self.failed {
            0 => of,
            failed => format!("{of}, {} failed", format::count(failed)),
        }
    }
}

/// One row.
pub(in super::super) struct Job {
    /// What it is known by everywhere.
    pub id: String,
    /// What it is about.
    pub about: String,
    /// Where it stands, in the service's own word.
    pub state: String,
    /// What that means.
    pub tone: Tone,
    /// How far it has come, where it has parts.
    pub bar: Option<Bar>,
    /// Attempts that failed, where that is known.
    pub attempts: i64,
    /// What went wrong, or why it waits.
    pub note: String,
    /// When it was accepted.
    pub at: When,
}

impl Job {
    /// Its timeline.
    pub fn link(&self) -> String {
        format!("/trace/{}", format::in_path(&self.id))
    }
}

/// A page of jobs.
pub(in super::super) struct Listing {
    pub jobs: Vec<Job>,
    /// Where the next page begins.
    pub next: Option<String>,
}

impl Listing {
    /// Has any of them parts?
    pub fn has_bars(&self) -> bool {
        self.jobs.iter().any(|job| job.bar.is_some())
    }

    /// Has any of them failed before?
    pub fn has_attempts(&self) -> bool {
        self.jobs.iter().any(|job| job.attempts > 0)
    }

    /// Out of up to one row too many.
    pub fn cut<T, K: Serialize>(
        rows: Vec<T>,
        limit: Limit,
        list: &str,
        key: impl FnOnce(&T) -> K,
        job: impl FnMut(T) -> Job,
    ) -> Result<Self, Problem> {
        Ok(Self::new(Page::cut(rows, limit, list, key)?.map(job)))
    }

    /// One page of a service's jobs.
    pub fn new(page: Page<Job>) -> Self {
        Self {
            jobs: page.items,
            next: page.next_cursor,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_never_leaves_its_frame() {
        let bar = Bar {
            done: 3,
            failed: 9,
            total: 6,
        };
        assert_eq!((bar.done_width(), bar.failed_width()), (50.0, 100.0));
        let none = Bar {
            done: 0,
            failed: 0,
            total: 0,
        };
        assert_eq!(none.done_width(), 0.0);
        assert_eq!(bar.words(), "3 of 6, 9 failed");
    }
}
