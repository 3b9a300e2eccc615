//! Evidence attached over the Postgres transport, compared with bare loops of the same calls; and the upload of a large archive.

use anyhow::{Result, bail};

use super::Bench;
use crate::adapter::{Adapter, Done, Request};
use crate::install::Program;
use crate::peer::OURS;
use crate::plan::log;
use crate::results::{CALLS, LIMIT};

const TEMPLATE: &str = "template_evidence";
const DATABASE: &str = "run_evidence";

/// File sizes: a note, a page, a document or photograph.
const SIZES: [(&str, usize); 3] = [
    ("evidence/16KB", 16 << 10),
    ("evidence/128KB", 128 << 10),
    ("evidence/1MB", 1 << 20),
];

/// Size of a file in the large archive.
const LARGE_FILE: usize = 16 << 20;

impl Bench {
    /// All systems in each round, each with a fresh database and its own files.
    pub(super) async fn evidence(&mut self) -> Result<()> {
        let path = std::env::current_exe()?.with_file_name("bench-evidence");
        if !path.exists() {
            bail!("{} is missing: build the whole package", path.display());
        }
        // On the same disk as the database.
        let files = tempfile::Builder::new()
            .prefix("bench-evidence-")
            .tempdir_in(crate::CACHE)?;
        let program = Program {
            path,
            arguments: vec![files.path().display().to_string()],
        };
        self.cluster.create_database(TEMPLATE, None).await?;
        Adapter::setup("evidence", &program, &self.cluster.url(TEMPLATE)).await?;
        for round in 1..=self.plan.rounds {
            for (measure, bytes) in SIZES {
                let (files, max_bytes) = self.plan.evidence;
                let count = files.min(max_bytes / bytes as u64) / 3 * 3;
                for (action, who) in [("bare", LIMIT), ("calls", CALLS), ("ours", OURS)] {
                    log(&format!("{measure}: round {round}: {action}"));
                    match self.attach(&program, action, count, bytes).await {
                        Ok((done, settings)) => {
                            let rate = done.items as f64 / done.seconds.max(1e-6);
                            self.results
                                .record(measure, "files/s", who, &settings, rate);
                        }
                        Err(error) => self.results.fail(measure, who, &format!("{error:#}")),
                    }
                }
            }
            log(&format!("evidence: round {round}: a large archive"));
            let measure = "evidence/archive-memory";
            let count = self.plan.archive / LARGE_FILE as u64;
            match self.attach(&program, "ingest", count, LARGE_FILE).await {
                Ok((done, settings)) => {
                    let more = done.memory as f64;
                    self.results.record(measure, "MB", OURS, &settings, more);
                }
                Err(error) => self.results.fail(measure, OURS, &format!("{error:#}")),
            }
        }
        Ok(())
    }

    async fn attach(
        &self,
        program: &Program,
        action: &'static str,
        count: u64,
        bytes: usize,
    ) -> Result<(Done, String)> {
        self.cluster
            .create_database(DATABASE, Some(TEMPLATE))
            .await?;
        let url = self.cluster.url(DATABASE);
        let request = Request {
            bytes,
            ..Request::new(action, count)
        };
        let measured = async {
            let mut adapter = Adapter::start("evidence", program, &url, &request).await?;
            let settings = format!("{action}: {}", adapter.settings);
            adapter.signal().await?;
            anyhow::Ok((adapter.done().await?, settings))
        };
        let measured = measured.await;
        self.cluster.drop_database(DATABASE).await?;
        measured
    }
}
