//! Follows a job until it has ended.

use std::time::Duration;

use serde_json::Value;

use super::{
    super::{
        client::RequestError,
        wait::{WaitOptions, Waiter},
    },
    Client, Output, summary,
};
use crate::exit::{Exit, Failure};

/// Pause before a broken stream is opened again.
const RETRY_INTERVAL: Duration = Duration::from_millis(500);

/// Maximum number of attempts in a row to reach the server.
const MAX_FAILURES: u32 = 60;

/// Waits for the job's end; a failure if it did not complete.
pub(super) async fn until_over(
    client: &Client,
    job: &str,
    wait: &WaitOptions,
    output: &Output,
) -> Result<(), Failure> {
    let show = format!("postrider exports show {job}");
    let mut waiter = Waiter::new(wait, output, format!("job {job}"), show);
    let last = waiter
        .follow(async |report| follow_to_the_end(client, job, report).await)
        .await?;
    let polled = client.poll(&["jobs", job]).await;
    let view = polled.map_err(|error| waiter.interrupted(error))?;
    output.answer(&view, || summary(&view, output))?;
    match last["status"].as_str() {
        Some("COMPLETED") => Ok(()),
        _ => Err(Failure::new(
            Exit::Failed,
            format!("job {job} did not complete"),
        )),
    }
}

/// Follows the job through broken streams and server restarts.
async fn follow_to_the_end(
    client: &Client,
    job: &str,
    report: &mut dyn FnMut(&str),
) -> Result<Value, RequestError> {
    let mut failures = 0;
    loop {
        match follow(client, job, report).await {
            Ok(Some(progress)) => return Ok(progress),
            Ok(None) => failures = 0,
            Err(error) if !error.is_transient() || failures >= MAX_FAILURES => return Err(error),
            Err(_) => failures += 1,
        }
        tokio::time::sleep(RETRY_INTERVAL).await;
    }
}

/// Follows the stream of events; returns the last one if the job has ended, none if the stream ended first.
async fn follow(
    client: &Client,
    job: &str,
    report: &mut dyn FnMut(&str),
) -> Result<Option<Value>, RequestError> {
    let mut stream = client.stream(&["jobs", job, "events"]).await?;
    let mut text = String::new();
    while let Some(chunk) = stream.next().await? {
        text.push_str(&String::from_utf8_lossy(&chunk));
        while let Some(end) = text.find("\n\n") {
            let event: String = text.drain(..end + 2).collect();
            let Some((name, progress)) = read(&event) else {
                continue;
            };
            let [done, failed, total] = ["done", "failed", "total"].map(|name| &progress[name]);
            report(&format!("{done} of {total} done, {failed} failed"));
            if name == "end" {
                return Ok(Some(progress));
            }
        }
    }
    Ok(None)
}

/// Name and content of an event; none for a comment that keeps the connection alive.
fn read(event: &str) -> Option<(String, Value)> {
    let field = |name: &str| {
        let found = event.lines().find_map(|line| line.strip_prefix(name));
        found.map(|value| value.trim_start().to_owned())
    };
    let content = serde_json::from_str(&field("data:")?).ok()?;
    Some((field("event:")?, content))
}
