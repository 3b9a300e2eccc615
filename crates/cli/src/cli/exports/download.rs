//! Downloads the files of a job, each completely or not at all.

use std::path::PathBuf;

use postrider_web::text::plural;
use reqwest::Method;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;

use super::{Client, Output, word};
use crate::exit::{Exit, Failure};

#[derive(Debug, clap::Args)]
pub(super) struct Download {
    /// The job's id.
    job: String,
    /// Target directory; created if missing.
    #[arg(long, value_name = "DIR", default_value = ".")]
    dir: PathBuf,
}

pub(super) async fn run(
    client: &Client,
    download: &Download,
    output: &Output,
) -> Result<(), Failure> {
    let job = &download.job;
    let (_, view) = client.call(Method::GET, &["jobs", job], &[], None).await?;
    let files = view["dataContent"].as_array().cloned().unwrap_or_default();
    tokio::fs::create_dir_all(&download.dir)
        .await
        .map_err(unwritable)?;
    let bar = output.bar("downloading", files.len() as u64);
    for file in &files {
        fetch(client, download, file).await?;
        bar.inc(1);
    }
    bar.finish_and_clear();
    let answer =
        json!({ "jobId": job, "files": files.len(), "total": view["total"], "dir": download.dir });
    output.answer(&answer, || {
        let total = plural(view["total"].as_i64().unwrap_or_default(), "file");
        format!("{} of {total} in {}", files.len(), download.dir.display())
    })
}

async fn fetch(client: &Client, download: &Download, file: &Value) -> Result<(), Failure> {
    let (index, indicator) = (word(&file["indexKey"]), word(&file["asofindicator"]));
    let date = file["effectiveDate"].to_string();
    let path = word(&file["s3Path"]);
    // Whatever the server says, nothing is written outside the directory.
    let name = path
        .rsplit('/')
        .next()
        .filter(|name| !name.is_empty() && !name.starts_with('.') && !name.contains('\\'))
        .ok_or_else(|| Failure::new(Exit::Failed, format!("{path} does not name a file")))?;
    let (target, partial) = (
        download.dir.join(name),
        download.dir.join(format!(".{name}.part")),
    );
    let mut stream = client
        .stream(&["jobs", &download.job, "files", &index, &date, &indicator])
        .await?;
    let mut written = tokio::fs::File::create(&partial)
        .await
        .map_err(unwritable)?;
    while let Some(chunk) = stream.next().await? {
        written.write_all(&chunk).await.map_err(unwritable)?;
    }
    written.flush().await.map_err(unwritable)?;
    tokio::fs::rename(&partial, &target)
        .await
        .map_err(unwritable)
}

fn unwritable(error: std::io::Error) -> Failure {
    Failure::caused(Exit::Failed, "a file can't be written", &error)
}
