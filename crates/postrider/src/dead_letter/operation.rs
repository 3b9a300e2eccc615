//! Bulk redrive and archive: recorded first, then performed in batches.
//!
//! An operation is durable: if a process dies in the middle, any other continues it (see [`super::step`]). Its rate is
//! measured by the database's clock.

use serde::{Deserialize, Serialize};
use sqlx::PgPool;
use sqlx::types::Json;
use sqlx::types::time::OffsetDateTime;

use super::{DeadLetters, Filter, Step};
use crate::lease::Operator;
use crate::{Error, Result};

const SUBMIT: &str = "
insert into postrider.operation (actor, reason, action, filter, rate, most, confirmed)
values ($1, $2, $3, $4, $5, $6, $7) returning *";

const FIND: &str = "select * from postrider.operation where id = $1";

const RECENT: &str = "
select * from postrider.operation where $1::bigint is null or id < $1 order by id desc limit $2";

const STOP: &str = "
update postrider.operation set finished_at = clock_timestamp(), stopped_by = $2
where id = $1 and finished_at is null";

/// What to do with dead letters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// Make them ready again, with fresh attempts.
    Redrive,
    /// Archive them.
    Archive,
}

impl Action {
    /// The name in the database.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Redrive => "redrive",
            Self::Archive => "archive",
        }
    }
}

/// A request for a bulk operation.
#[derive(Debug, Clone, PartialEq)]
pub struct OperationRequest {
    /// The action.
    pub action: Action,
    /// Which dead letters.
    pub filter: Filter,
    /// Maximum rate per second; None means unlimited.
    pub rate: Option<f64>,
    /// Maximum number of items.
    pub limit: Option<i64>,
    /// The operator confirmed that stale items may be redriven.
    pub confirmed: bool,
}

impl OperationRequest {
    /// Applies an action to everything that matches, without a rate limit.
    #[must_use]
    pub const fn new(action: Action, filter: Filter) -> Self {
        Self {
            action,
            filter,
            rate: None,
            limit: None,
            confirmed: false,
        }
    }
}

/// A bulk operation and its progress.
#[derive(Debug, Clone, PartialEq, sqlx::FromRow)]
pub struct Operation {
    /// Id.
    pub id: i64,
    /// When it was requested; items that die later aren't included.
    pub created_at: OffsetDateTime,
    /// Who requested it.
    pub actor: String,
    /// The reason given.
    pub reason: Option<String>,
    /// `redrive` or `archive`.
    pub action: String,
    /// Which dead letters.
    #[sqlx(json)]
    pub filter: Filter,
    /// Maximum rate per second.
    pub rate: Option<f64>,
    /// Maximum number of items.
    #[sqlx(rename = "most")]
    pub limit: Option<i64>,
    /// The operator confirmed that stale items may be redriven.
    pub confirmed: bool,
    /// Number of changed items.
    pub changed: i64,
    /// Number of matching items that could not be changed: their dedupe key is in use again, they changed meanwhile, or
    /// a guard held them back.
    pub skipped: i64,
    /// When it finished.
    pub finished_at: Option<OffsetDateTime>,
    /// Who stopped it early.
    pub stopped_by: Option<String>,
}

/// The result of a bulk operation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Total {
    /// Number of changed items.
    pub changed: i64,
    /// Number of matching items that could not be changed.
    pub skipped: i64,
}

impl DeadLetters {
    /// Records an operation. Callers of [`DeadLetters::step`] perform it.
    pub async fn submit(
        &self,
        pool: &PgPool,
        operator: &Operator,
        request: &OperationRequest,
    ) -> Result<Operation> {
        request.filter.check()?;
        if operator.name.trim().is_empty() {
            return Err(Error::invalid(
                "operator",
                "must not be empty: the audit needs a name",
            ));
        }
        if request
            .rate
            .is_some_and(|rate| !rate.is_finite() || rate <= 0.0)
        {
            return Err(Error::invalid("rate", "must be greater than zero"));
        }
        Ok(sqlx::query_as(SUBMIT)
            .bind(crate::failure::storable(&operator.name, 200))
            .bind(
                operator
                    .reason
                    .as_deref()
                    .map(|reason| crate::failure::storable(reason, 2_000)),
            )
            .bind(request.action.as_str())
            .bind(Json(&request.filter))
            .bind(request.rate)
            .bind(request.limit)
            .bind(request.confirmed)
            .fetch_one(pool)
            .await?)
    }

    /// Returns an operation and its progress.
    pub async fn operation(&self, pool: &PgPool, id: i64) -> Result<Option<Operation>> {
        Ok(sqlx::query_as(FIND).bind(id).fetch_optional(pool).await?)
    }

    /// Lists operations, newest first; continue before the last one's id.
    pub async fn operations(
        &self,
        pool: &PgPool,
        before: Option<i64>,
        limit: i64,
    ) -> Result<Vec<Operation>> {
        Ok(sqlx::query_as(RECENT)
            .bind(before)
            .bind(limit)
            .fetch_all(pool)
            .await?)
    }

    /// Stops an operation; what it has changed stays changed. Returns false if it had finished.
    pub async fn stop(&self, pool: &PgPool, operator: &Operator, id: i64) -> Result<bool> {
        let name = crate::failure::storable(&operator.name, 200);
        let done = sqlx::query(STOP).bind(id).bind(name).execute(pool).await?;
        Ok(done.rows_affected() > 0)
    }

    /// Records an operation and performs it to its end, here.
    pub async fn execute(
        &self,
        pool: &PgPool,
        operator: &Operator,
        request: &OperationRequest,
    ) -> Result<Total> {
        let id = self.submit(pool, operator, request).await?.id;
        loop {
            match self.step(pool, id).await? {
                Step::Progressed | Step::Busy => {}
                Step::Wait(wait) => tokio::time::sleep(wait).await,
                Step::Finished => break,
            }
        }
        let ended = self.operation(pool, id).await?;
        Ok(ended.map_or_else(Total::default, |ended| Total {
            changed: ended.changed,
            skipped: ended.skipped,
        }))
    }
}
