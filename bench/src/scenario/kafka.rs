//! From the outbox to Kafka, against a bare producer that sends the same messages from memory.

use anyhow::{Context, Result, bail};
use postrider_testkit::servers::Kind;

use super::Bench;
use crate::adapter::{Adapter, Order};
use crate::install::Program;
use crate::peer::OURS;
use crate::plan::say;
use crate::results::LIMIT;

const MEASURE: &str = "kafka/1KB";
const BYTES: usize = 1024;
const TEMPLATE: &str = "template_kafka";
const DATABASE: &str = "run_kafka";

impl Bench {
    /// Both in each round, each with a fresh database and a fresh topic of the one broker.
    pub(super) async fn kafka(&mut self) -> Result<()> {
        let broker = Kind::Kafka.dedicated().await;
        let broker = broker.context("Kafka is missing: `make setup` installs it")?;
        let path = std::env::current_exe()?.with_file_name("bench-kafka");
        if !path.exists() {
            bail!("{} is missing: build the whole package", path.display());
        }
        let program = Program {
            path,
            arguments: vec![broker.url().to_owned()],
        };
        self.cluster.fresh(TEMPLATE, None).await?;
        Adapter::setup(MEASURE, &program, &self.cluster.url(TEMPLATE)).await?;
        // A Java machine is slow at first: a turn of each that does not count.
        for action in ["bare", "ours"] {
            say(&format!("kafka: warming up: {action}"));
            self.send(&program, action).await?;
        }
        for round in 1..=self.plan.rounds {
            for (action, who) in [("bare", LIMIT), ("ours", OURS)] {
                say(&format!("kafka: round {round}: {action}"));
                match self.send(&program, action).await {
                    Ok((rate, settings)) => {
                        self.results
                            .note(MEASURE, "messages/s", who, &settings, rate);
                    }
                    Err(error) => self.results.fail(MEASURE, who, &format!("{error:#}")),
                }
            }
        }
        Ok(())
    }

    async fn send(&self, program: &Program, action: &'static str) -> Result<(f64, String)> {
        self.cluster.fresh(DATABASE, Some(TEMPLATE)).await?;
        let url = self.cluster.url(DATABASE);
        let order = Order {
            bytes: BYTES,
            ..Order::new(action, self.plan.kafka)
        };
        let measured = async {
            let mut adapter = Adapter::start(MEASURE, program, &url, &order).await?;
            let settings = format!("{action}: {}", adapter.settings);
            adapter.tell().await?;
            let done = adapter.done().await?;
            anyhow::Ok((done.items as f64 / done.seconds.max(1e-6), settings))
        };
        let measured = measured.await;
        self.cluster.drop(DATABASE).await?;
        measured
    }
}
