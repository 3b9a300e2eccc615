//! Orders over HTTP, against pgbench's single-row commits with the same number of clients.

use std::collections::BTreeMap;

use anyhow::{Result, ensure};
use sqlx::Connection;

use super::Bench;
use crate::limit;
use crate::load::{self, LoadResult};
use crate::peer::OURS;
use crate::plan::log;
use crate::program::Server;

const CLIENTS: u64 = 64;
const DATABASE: &str = "run_orders";
const ACCEPT: &str = "orders/accept/64";
const REPLAY: &str = "orders/replay/64";
const SETTINGS: &str = "POST /do/order, 64 connections kept open, `serve --roles api`";

impl Bench {
    /// Each order is posted twice: the first time it is accepted (202, durable), the second time replayed (200).
    pub(super) async fn orders(&mut self) -> Result<()> {
        for round in 1..=self.plan.rounds {
            log(&format!("orders: round {round} of {}", self.plan.rounds));
            let (clients, count) = (CLIENTS as usize, self.plan.singles * 2);
            limit::singles(&self.cluster, &mut self.results, ACCEPT, clients, count).await?;
            if let Err(error) = self.orders_once().await {
                log(&format!("orders: {error:#}"));
                for measure in [ACCEPT, REPLAY] {
                    self.results.fail(measure, OURS, &format!("{error:#}"));
                }
            }
            self.cluster.drop_database(DATABASE).await?;
        }
        Ok(())
    }

    async fn orders_once(&mut self) -> Result<()> {
        let count = self.plan.orders;
        self.cluster.create_database(DATABASE, None).await?;
        let server = Server::start(&self.cluster.url(DATABASE), "api").await?;
        // Connections are opened and statements prepared before the clock starts.
        post(&server, CLIENTS * 10, "warm").await?;
        for (measure, status) in [(ACCEPT, 202), (REPLAY, 200)] {
            let before = server.cpu()?;
            let loaded = post(&server, count, "k").await?;
            let spent = server.cpu()? - before;
            ensure!(
                loaded.statuses == BTreeMap::from([(status, count)]),
                "of {count} orders not all were answered with {status}: {:?}",
                loaded.statuses
            );
            self.results
                .record(measure, "items/s", OURS, SETTINGS, loaded.rate());
            self.results.record(
                &format!("{measure}/cpu"),
                "µs",
                OURS,
                "processor time of the server per request, PostgreSQL's not included",
                spent.as_secs_f64() * 1e6 / count as f64,
            );
        }
        server.stop().await?;
        let mut connection = self.cluster.connect(DATABASE).await?;
        let stored: i64 = sqlx::query_scalar(
            "select count(*) from orders.outbox_orders o join orders.idempo_ledger l using (idempotency_key)
             where o.idempotency_key like 'k-%' and o.status = 'pending' and l.status = 'accepted'",
        )
        .fetch_one(&mut connection)
        .await?;
        connection.close().await?;
        ensure!(
            u64::try_from(stored) == Ok(count),
            "{count} orders were accepted, but {stored} are stored"
        );
        Ok(())
    }
}

async fn post(server: &Server, count: u64, prefix: &'static str) -> Result<LoadResult> {
    let body = move |number| {
        format!(
            "{{\"version\":\"1.1\",\"idempotency_key\":\"{prefix}-{number}\",\"account\":\"A{}\",\"symbol\":\"ACME\",\"side\":\"buy\",\
             \"quantity\":\"10\",\"type\":\"limit\",\"limit_price\":\"12.50\",\"time_in_force\":\"day\",\"tags\":{{}}}}",
            number % 100
        )
    };
    load::post(server.address, "/do/order", CLIENTS, count, body).await
}
