//! Evidence attached over the Postgres transport, against bare loops of the same calls; and a large archive taken in.

use anyhow::{Result, bail};

use super::Bench;
use crate::adapter::{Adapter, Done, Order};
use crate::install::Program;
use crate::peer::OURS;
use crate::plan::say;
use crate::results::{CALLS, LIMIT};

const TEMPLATE: &str = "template_evidence";
const DATABASE: &str = "run_evidence";

/// Sizes of files: a note, a page, a document or photograph.
const SIZES: [(&str, usize); 3] = [
    ("evidence/16KB", 16 << 10),
    ("evidence/128KB", 128 << 10),
    ("evidence/1MB", 1 << 20),
];

/// Files of the large archive.
const LARGE: usize = 16 << 20;

impl Bench {
    /// Everybody in each round, each on a fresh copy with files of its own.
    pub(super) async fn evidence(&mut self) -> Result<()> {
        let path = std::env::current_exe()?.with_file_name("bench-evidence");
        if !path.exists() {
            bail!("{} is missing: build the whole package", path.display());
        }
        // Beside the database: on the same disk.
        let files = tempfile::Builder::new()
            .prefix("bench-evidence-")
            .tempdir_in(crate::CACHE)?;
        let program = Program {
            path,
            arguments: vec![files.path().display().to_string()],
        };
        self.cluster.fresh(TEMPLATE, None).await?;
        Adapter::setup("evidence", &program, &self.cluster.url(TEMPLATE)).await?;
        for round in 1..=self.plan.rounds {
            for (measure, bytes) in SIZES {
                let (files, most) = self.plan.evidence;
                let count = files.min(most / bytes as u64) / 3 * 3;
                for (action, who) in [("bare", LIMIT), ("calls", CALLS), ("ours", OURS)] {
                    say(&format!("{measure}: round {round}: {action}"));
                    match self.attach(&program, action, count, bytes).await {
                        Ok((done, settings)) => {
                            let rate = done.items as f64 / done.seconds.max(1e-6);
                            self.results.note(measure, "files/s", who, &settings, rate);
                        }
                        Err(error) => self.results.fail(measure, who, &format!("{error:#}")),
                    }
                }
            }
            say(&format!("evidence: round {round}: a large archive"));
            let measure = "evidence/archive-memory";
            let count = self.plan.archive / LARGE as u64;
            match self.attach(&program, "ingest", count, LARGE).await {
                Ok((done, settings)) => {
                    let more = done.memory as f64;
                    self.results.note(measure, "MB", OURS, &settings, more);
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
        self.cluster.fresh(DATABASE, Some(TEMPLATE)).await?;
        let url = self.cluster.url(DATABASE);
        let order = Order {
            bytes,
            ..Order::new(action, count)
        };
        let measured = async {
            let mut adapter = Adapter::start("evidence", program, &url, &order).await?;
            let settings = format!("{action}: {}", adapter.settings);
            adapter.tell().await?;
            anyhow::Ok((adapter.done().await?, settings))
        };
        let measured = measured.await;
        self.cluster.drop(DATABASE).await?;
        measured
    }
}
