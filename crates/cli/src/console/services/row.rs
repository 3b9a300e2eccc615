//! An item as a row of a page.

use postrider_web::service::{ItemSummary, Progress, Tone};

use super::super::format::{self, When};

/// One row.
pub(super) struct Row {
    pub id: String,
    pub summary: String,
    pub state: String,
    /// The state's class in the style sheet.
    pub class: &'static str,
    pub bar: Option<Bar>,
    pub failed_attempts: i64,
    pub remark: String,
    pub accepted: When,
}

impl Row {
    /// Its timeline.
    pub fn link(&self) -> String {
        format!("/trace/{}", format::in_path(&self.id))
    }
}

impl From<ItemSummary> for Row {
    fn from(item: ItemSummary) -> Self {
        Self {
            id: item.id,
            summary: item.summary,
            state: item.state,
            class: match item.tone {
                Tone::Good => "good",
                Tone::Busy => "busy",
                Tone::Waiting => "waiting",
                Tone::Bad => "bad",
                Tone::Quiet => "quiet",
            },
            bar: item.progress.map(Bar),
            failed_attempts: item.failed_attempts,
            remark: item.remark,
            accepted: item.accepted_at.into(),
        }
    }
}

/// Progress as a bar.
pub(super) struct Bar(Progress);

impl Bar {
    /// A part of the whole, in per cent.
    fn percent(&self, part: i64) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "a width on a screen")]
        let percent = part as f64 * 100.0 / self.0.total.max(1) as f64;
        (percent.clamp(0.0, 100.0) * 10.0).round() / 10.0
    }

    pub fn done_width(&self) -> f64 {
        self.percent(self.0.done)
    }

    pub fn failed_width(&self) -> f64 {
        self.percent(self.0.failed)
    }

    /// In words, for screen readers.
    pub fn label(&self) -> String {
        let [done, failed, total] =
            [self.0.done, self.0.failed, self.0.total].map(postrider_web::text::count);
        match self.0.failed {
            0 => format!("{done} of {total}"),
            _ => format!("{done} of {total}, {failed} failed"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_stays_within_its_frame() {
        let bar = |done, failed, total| {
            Bar(Progress {
                done,
                failed,
                total,
            })
        };
        let full = bar(3, 9, 6);
        assert_eq!((full.done_width(), full.failed_width()), (50.0, 100.0));
        assert_eq!(full.label(), "3 of 6, 9 failed");
        assert_eq!(bar(0, 0, 0).done_width(), 0.0);
    }
}
