//! Payments end to end over the Postgres transport, compared with a bare loop with the same statements and the same call.

use anyhow::{Result, bail};

use super::Bench;
use crate::adapter::{Adapter, Request};
use crate::install::Program;
use crate::peer::OURS;
use crate::plan::log;
use crate::results::LIMIT;

const MEASURE: &str = "payments";
const TEMPLATE: &str = "template_payments";
const DATABASE: &str = "run_payments";

impl Bench {
    /// Both in each round, each with a fresh database.
    pub(super) async fn payments(&mut self) -> Result<()> {
        let path = std::env::current_exe()?.with_file_name("bench-payments");
        if !path.exists() {
            bail!("{} is missing: build the whole package", path.display());
        }
        let program = Program {
            path,
            arguments: Vec::new(),
        };
        self.cluster.create_database(TEMPLATE, None).await?;
        Adapter::setup(MEASURE, &program, &self.cluster.url(TEMPLATE)).await?;
        for round in 1..=self.plan.rounds {
            for (action, who) in [("bare", LIMIT), ("ours", OURS)] {
                log(&format!("payments: round {round}: {action}"));
                let measured = self.pay(&program, action).await;
                self.cluster.drop_database(DATABASE).await?;
                match measured {
                    Ok((rate, settings)) => {
                        self.results
                            .record(MEASURE, "payments/s", who, &settings, rate);
                    }
                    Err(error) => self.results.fail(MEASURE, who, &format!("{error:#}")),
                }
            }
        }
        Ok(())
    }

    async fn pay(&self, program: &Program, action: &'static str) -> Result<(f64, String)> {
        self.cluster
            .create_database(DATABASE, Some(TEMPLATE))
            .await?;
        let url = self.cluster.url(DATABASE);
        let request = Request::new(action, self.plan.payments);
        let mut adapter = Adapter::start(MEASURE, program, &url, &request).await?;
        let settings = format!("{action}: {}", adapter.settings);
        adapter.signal().await?;
        let done = adapter.done().await?;
        Ok((done.items as f64 / done.seconds.max(1e-6), settings))
    }
}
