//! `--wait`: polls until the work has finished, shows progress on standard error, and gives up after `--timeout`.
//!
//! Whatever goes wrong while waiting, the message names what was accepted, so that nobody submits it twice.

use std::time::{Duration, Instant};

use serde_json::Value;

use super::{Output, client::Client};
use crate::exit::{Exit, Failure};

const POLL_INTERVAL: Duration = Duration::from_millis(250);

/// Between two progress lines where standard error is not a terminal.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(10);

/// Options of a command that can wait.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct WaitOptions {
    /// Wait until it has finished; exit code 1 if it failed.
    #[arg(long)]
    pub wait: bool,
    /// Stop waiting after this long, with exit code 8; the work goes on.
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = duration, requires = "wait")]
    timeout: Duration,
}

fn duration(text: &str) -> Result<Duration, String> {
    postrider::internal::duration::parse(text)
        .filter(|duration| !duration.is_zero())
        .ok_or_else(|| "write a duration such as 90s, 5m or 2h".to_owned())
}

/// Waits for something that a server has accepted.
pub(super) struct Waiter {
    what: String,
    show: String,
    started: Instant,
    timeout: Duration,
    progress: indicatif::ProgressBar,
    lines: bool,
    next_line: Instant,
}

impl Waiter {
    /// Starts to wait for `what`; the command `show` tells how far it is.
    pub fn new(
        options: &WaitOptions,
        output: &Output,
        what: impl Into<String>,
        show: impl Into<String>,
    ) -> Self {
        let (what, started) = (what.into(), Instant::now());
        Self {
            progress: output.spinner(&format!("waiting for {what}")),
            lines: output.has_plain_progress(),
            what,
            show: show.into(),
            started,
            timeout: options.timeout,
            next_line: started + PROGRESS_INTERVAL,
        }
    }

    /// Polls `path` until `is_over`; `status` says in a few words how far it is.
    pub async fn until(
        mut self,
        client: &Client,
        path: &[&str],
        status: impl Fn(&Value) -> String,
        mut is_over: impl FnMut(&Value) -> bool,
    ) -> Result<Value, Failure> {
        loop {
            let polled = client.poll(path).await;
            let view = polled.map_err(|error| self.interrupted(error))?;
            if is_over(&view) {
                self.progress.finish_and_clear();
                return Ok(view);
            }
            self.report(&status(&view));
            if self.started.elapsed() >= self.timeout {
                return Err(self.timed_out());
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// Runs `work`, which reports how far it is, until it ends or the wait times out.
    pub async fn follow<T, E: Into<Failure>>(
        &mut self,
        work: impl AsyncFnOnce(&mut dyn FnMut(&str)) -> Result<T, E>,
    ) -> Result<T, Failure> {
        let timeout = self.timeout;
        let mut report = |status: &str| self.report(status);
        let done = tokio::time::timeout(timeout, work(&mut report)).await;
        match done {
            Ok(Ok(done)) => {
                self.progress.finish_and_clear();
                Ok(done)
            }
            Ok(Err(error)) => Err(self.interrupted(error)),
            Err(_) => Err(self.timed_out()),
        }
    }

    /// Shows how far it is.
    fn report(&mut self, status: &str) {
        self.progress
            .set_message(format!("waiting for {}: {status}", self.what));
        if self.lines && Instant::now() >= self.next_line {
            self.next_line += PROGRESS_INTERVAL;
            let waited = self.started.elapsed().as_secs();
            eprintln!("waiting for {}: {status} ({waited} s)", self.what);
        }
    }

    /// The wait has failed, which says nothing about the work.
    pub fn interrupted(&self, failure: impl Into<Failure>) -> Failure {
        self.progress.finish_and_clear();
        let (Self { what, show, .. }, failure) = (self, failure.into());
        let message = format!(
            "{what} was accepted, but waiting for it failed: {failure}; check it with `{show}`"
        );
        failure.with_message(message)
    }

    fn timed_out(&self) -> Failure {
        self.progress.finish_and_clear();
        let Self { what, show, .. } = self;
        let after = postrider::internal::duration::format(self.timeout);
        let message = format!(
            "{what} was accepted but had not finished after {after}; it goes on without this command: check it with `{show}`, or wait longer with --timeout"
        );
        Failure::new(Exit::Timeout, message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timeout_is_a_duration_longer_than_zero() {
        assert_eq!(duration("90s"), Ok(Duration::from_secs(90)));
        for wrong in ["", "0", "soon", "-1s"] {
            assert!(duration(wrong).is_err(), "{wrong:?}");
        }
    }
}
