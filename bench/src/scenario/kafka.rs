//! From the outbox to Kafka, compared with a bare producer that sends the same messages from memory.

use anyhow::{Context, Result, bail};
use postrider_testkit::servers::Kind;

use super::Bench;
use crate::adapter::{Adapter, Request};
use crate::install::Program;
use crate::peer::OURS;
use crate::plan::log;
use crate::results::LIMIT;

const MEASURE: &str = "kafka/1KB";
const BYTES: usize = 1024;
const TEMPLATE: &str = "template_kafka";
const DATABASE: &str = "run_kafka";

impl Bench {
    /// Both in each round, each with a fresh database and topic on the same broker.
    pub(super) async fn kafka(&mut self) -> Result<()> {
        let broker = Kind::Kafka.dedicated().await;
        let broker = broker.context("Kafka is missing; install it with `make setup`")?;
        let path = std::env::current_exe()?.with_file_name("bench-kafka");
        if !path.exists() {
            bail!("{} is missing: build the whole package", path.display());
        }
        let program = Program {
            path,
            arguments: vec![broker.url().to_owned()],
        };
        self.cluster.create_database(TEMPLATE, None).await?;
        Adapter::setup(MEASURE, &program, &self.cluster.url(TEMPLATE)).await?;
        // The broker's JVM needs to warm up: one turn of each is not measured.
        for action in ["bare", "ours"] {
            log(&format!("kafka: warming up: {action}"));
            self.send(&program, action).await?;
        }
        for round in 1..=self.plan.rounds {
            for (action, who) in [("bare", LIMIT), ("ours", OURS)] {
                log(&format!("kafka: round {round}: {action}"));
                match self.send(&program, action).await {
                    Ok((rate, settings)) => {
                        self.results
                            .record(MEASURE, "messages/s", who, &settings, rate);
                    }
                    Err(error) => self.results.fail(MEASURE, who, &format!("{error:#}")),
                }
            }
        }
        Ok(())
    }

    async fn send(&self, program: &Program, action: &'static str) -> Result<(f64, String)> {
        self.cluster
            .create_database(DATABASE, Some(TEMPLATE))
            .await?;
        let url = self.cluster.url(DATABASE);
        let request = Request {
            bytes: BYTES,
            ..Request::new(action, self.plan.kafka)
        };
        let measured = async {
            let mut adapter = Adapter::start(MEASURE, program, &url, &request).await?;
            let settings = format!("{action}: {}", adapter.settings);
            adapter.signal().await?;
            let done = adapter.done().await?;
            anyhow::Ok((done.items as f64 / done.seconds.max(1e-6), settings))
        };
        let measured = measured.await;
        self.cluster.drop_database(DATABASE).await?;
        measured
    }
}
