//! The progress of the demo: a bar for each service on a terminal, and a line for each event.

use std::{
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use postrider_sim::demo::{Progress, Reporter};

use crate::cli::output::{Output, Tone};

/// Without a terminal, how often a line summarizes the progress.
const SUMMARY_INTERVAL: Duration = Duration::from_secs(5);

pub struct ProgressView {
    output: Output,
    began: Instant,
    bars: MultiProgress,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    bars: Vec<ProgressBar>,
    last_summary: Option<Instant>,
}

impl ProgressView {
    pub fn new(output: Output) -> Self {
        Self {
            output,
            began: Instant::now(),
            bars: MultiProgress::new(),
            state: Mutex::default(),
        }
    }

    pub const fn output(&self) -> &Output {
        &self.output
    }

    /// Removes the bars; the lines stay.
    pub fn clear(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        for bar in state.bars.drain(..) {
            bar.finish_and_clear();
            self.bars.remove(&bar);
        }
    }

    pub fn event(&self, event: &str, detail: &str) {
        let time = format!("{:>5.1} s", self.began.elapsed().as_secs_f64());
        let time = self.output.paint(Tone::Dim, &time);
        let line = format!("{time}  {event:<10} {detail}");
        self.bars.suspend(|| self.output.say(&line));
    }
}

impl Reporter for ProgressView {
    fn event(&self, event: &str, detail: &str) {
        Self::event(self, event, detail);
    }

    fn progress(&self, services: &[Progress]) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if self.output.is_watched() {
            for progress in services.iter().skip(state.bars.len()) {
                state.bars.push(self.bars.add(bar(progress)));
            }
            for (bar, progress) in state.bars.iter().zip(services) {
                bar.set_position(progress.done);
                bar.set_message(message(progress));
            }
        } else if state
            .last_summary
            .get_or_insert_with(Instant::now)
            .elapsed()
            >= SUMMARY_INTERVAL
        {
            state.last_summary = Some(Instant::now());
            drop(state);
            let done: Vec<String> = services
                .iter()
                .map(|progress| format!("{} {}", progress.done, progress.service))
                .collect();
            self.event("progress", &format!("done: {}", done.join(", ")));
        }
    }
}

fn bar(progress: &Progress) -> ProgressBar {
    let template = "  {prefix:<9} {bar:30} {pos:>4}/{len:<4} {msg}";
    let style =
        ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(progress.planned)
        .with_style(style)
        .with_prefix(progress.service)
        .with_message(message(progress))
}

fn message(progress: &Progress) -> String {
    let Progress {
        accepted,
        retried,
        dead,
        ..
    } = progress;
    format!("accepted {accepted:>4}  retried {retried:>3}  dead {dead}")
}
