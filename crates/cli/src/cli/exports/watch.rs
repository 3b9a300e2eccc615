//! Watching a job until it is over, with a progress bar.

use std::time::Duration;

use serde_json::Value;

use super::{
    super::{client::Miss, waiting::Accepted},
    Client, Output, summary,
};
use crate::exit::{Exit, Failure};

/// The pause before a stream that broke is taken up again.
const PAUSE: Duration = Duration::from_millis(500);

/// So many times in a row may the server be away.
const PATIENCE: u32 = 60;

/// Waits for the job's end; a failure if it did not complete.
pub(super) async fn until_over(client: &Client, job: &str, output: &Output) -> Result<(), Failure> {
    let accepted = Accepted::new(
        format!("job {job}"),
        format!("postrider exports show {job}"),
    );
    let bar = output.bar(job, 0);
    let over = follow_to_the_end(client, job, &bar).await;
    bar.finish_and_clear();
    let last = over.map_err(|miss| accepted.but(miss))?;
    let view = accepted.look(client, &["jobs", job]).await?;
    output.answer(&view, || summary(&view, output))?;
    match last["status"].as_str() {
        Some("COMPLETED") => Ok(()),
        _ => Err(Failure::new(
            Exit::Failed,
            format!("the job {job} did not complete"),
        )),
    }
}

/// Follows the job through streams that break and servers that restart.
async fn follow_to_the_end(
    client: &Client,
    job: &str,
    bar: &indicatif::ProgressBar,
) -> Result<Value, Miss> {
    let mut misses = 0;
    loop {
        match follow(client, job, bar).await {
            Ok(Some(progress)) => return Ok(progress),
            Ok(None) => misses = 0,
            Err(miss) if !miss.may_pass() || misses >= PATIENCE => return Err(miss),
            Err(_) => misses += 1,
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Follows the stream of events; the last one if the job is over, none if the stream ended before.
async fn follow(
    client: &Client,
    job: &str,
    bar: &indicatif::ProgressBar,
) -> Result<Option<Value>, Miss> {
    let mut stream = client.get(&["jobs", job, "events"]).await?;
    let mut text = String::new();
    while let Some(piece) = stream.next().await? {
        text.push_str(&String::from_utf8_lossy(&piece));
        while let Some(end) = text.find("\n\n") {
            let event: String = text.drain(..end + 2).collect();
            let Some((name, progress)) = read(&event) else {
                continue;
            };
            let count = |name: &str| progress[name].as_u64().unwrap_or_default();
            bar.set_length(count("total"));
            bar.set_position(count("done") + count("failed"));
            if name == "end" {
                return Ok(Some(progress));
            }
        }
    }
    Ok(None)
}

/// Name and content of an event; comments, which keep the connection alive, are none.
fn read(event: &str) -> Option<(String, Value)> {
    let field = |name: &str| {
        let found = event.lines().find_map(|line| line.strip_prefix(name));
        found.map(|value| value.trim_start().to_owned())
    };
    let content = serde_json::from_str(&field("data:")?).ok()?;
    Some((field("event:")?, content))
}
