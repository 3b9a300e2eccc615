//! Where a scenario plays: a database with the engine's schema and two plain logs, and the world outside.

use std::net::SocketAddr;
use std::time::Duration;

use postrider::migrate::Migrator;
use postrider_testkit::{TestDb, within};
use sqlx::PgPool;
use sqlx::postgres::{PgConnectOptions, PgConnection, PgPoolOptions};

use crate::messages::{GROUPS, MESSAGE};
use crate::outside::Outside;

/// Append-only, and without any constraint that could hide a second row.
const LOGS: &str = "
create schema proof;
-- One row per accepted call, in the caller's transaction; drawn after the enqueue, hence in the order of commits per lane.
create table proof.business (n bigserial, key text not null, item bigint not null);
-- One row per settled attempt, in the settling transaction: failed, done, died.
create table proof.effect (n bigserial, key text not null, step text not null, attempts integer not null, losses integer not null);
";

/// Long enough for two cores that are busy with everything else.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// Where the database and the world outside are; enough to work, also for a child process.
#[derive(Debug, Clone)]
pub struct Place {
    pub database: PgConnectOptions,
    pub outside: SocketAddr,
}

impl Place {
    pub fn pool(&self, size: u32) -> PgPool {
        PgPoolOptions::new()
            .max_connections(size)
            .acquire_timeout(Duration::from_secs(1))
            .connect_lazy_with(self.database.clone())
    }
}

/// A stage on the test kit's server.
#[derive(Debug)]
pub struct Stage {
    pub db: TestDb,
    pub outside: Outside,
}

impl Stage {
    pub async fn new() -> Self {
        let db = TestDb::from_template("proof", async |connection| prepare(connection).await).await;
        Self {
            db,
            outside: Outside::start().await,
        }
    }

    pub fn place(&self) -> Place {
        Place {
            database: self.db.connect_options(),
            outside: self.outside.address,
        }
    }
}

pub async fn prepare(connection: &mut PgConnection) -> Result<(), postrider::Error> {
    Migrator::new([postrider::migrations()])
        .run(&mut *connection)
        .await?;
    sqlx::raw_sql(LOGS).execute(&mut *connection).await?;
    for group in GROUPS {
        sqlx::query("select postrider.subscribe($1, $2)")
            .bind(MESSAGE)
            .bind(group)
            .execute(&mut *connection)
            .await?;
    }
    Ok(())
}

/// Waits until every item is done or dead.
pub async fn finished(pool: &PgPool) {
    const UNFINISHED: &str = "
        select id, state::text, topic, attempts::integer, losses::integer, lease_owner, parked
        from postrider.outbox where finished_at is null
        union all
        select id, state::text, consumer_group, attempts::integer, losses::integer, lease_owner, parked
        from postrider.delivery where finished_at is null
        limit 5";
    type Row = (
        i64,
        String,
        String,
        i32,
        i32,
        Option<String>,
        Option<String>,
    );
    within(PATIENCE, "every item is done or dead", async || {
        let left: Vec<Row> = sqlx::query_as(UNFINISHED)
            .fetch_all(pool)
            .await
            .map_err(|error| format!("{error}"))?;
        if left.is_empty() {
            Ok(())
        } else {
            Err(format!("{left:?}"))
        }
    })
    .await;
}
