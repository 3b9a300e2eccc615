//! Redriving or archiving many: written down first, then done piece by piece.
//!
//! The order is durable: a process that dies in the middle leaves the rest to any other (see [`super::step`]). Its pace is
//! kept by the database's clock.

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

/// What is to be done to dead letters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// They begin anew with fresh attempts.
    Redrive,
    /// They are laid to rest.
    Archive,
}

impl Action {
    /// Its word in the database.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Redrive => "redrive",
            Self::Archive => "archive",
        }
    }
}

/// What an operator asks for.
#[derive(Debug, Clone, PartialEq)]
pub struct Order {
    /// What to do.
    pub action: Action,
    /// To which.
    pub filter: Filter,
    /// At most so many per second; none: as fast as it goes.
    pub rate: Option<f64>,
    /// At most so many in all.
    pub most: Option<i64>,
    /// The operator knows that what is redriven may be stale.
    pub confirmed: bool,
}

impl Order {
    /// Do this to all that fit, as fast as it goes.
    #[must_use]
    pub const fn new(action: Action, filter: Filter) -> Self {
        Self {
            action,
            filter,
            rate: None,
            most: None,
            confirmed: false,
        }
    }
}

/// An order and how far it has come.
#[derive(Debug, Clone, PartialEq, sqlx::FromRow)]
pub struct Operation {
    /// Its number.
    pub id: i64,
    /// When it was given; what dies later is not meant.
    pub created_at: OffsetDateTime,
    /// By whom.
    pub actor: String,
    /// Why, in their words.
    pub reason: Option<String>,
    /// `redrive` or `archive`.
    pub action: String,
    /// Which are meant.
    #[sqlx(json)]
    pub filter: Filter,
    /// At most so many per second.
    pub rate: Option<f64>,
    /// At most so many in all.
    pub most: Option<i64>,
    /// The operator knows that what is redriven may be stale.
    pub confirmed: bool,
    /// So many have changed.
    pub changed: i64,
    /// So many fit but could not be changed: a dedupe key of theirs is in use again, they changed meanwhile, or a guard
    /// kept them.
    pub skipped: i64,
    /// When it ended.
    pub finished_at: Option<OffsetDateTime>,
    /// Who ended it early.
    pub stopped_by: Option<String>,
}

/// What a deed over many came to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Total {
    /// So many items changed.
    pub changed: i64,
    /// So many fit but could not be changed.
    pub skipped: i64,
}

impl DeadLetters {
    /// Writes an order down. It is done by whoever calls [`DeadLetters::step`].
    pub async fn submit(
        &self,
        pool: &PgPool,
        operator: &Operator,
        order: &Order,
    ) -> Result<Operation> {
        order.filter.check()?;
        if operator.name.trim().is_empty() {
            return Err(Error::invalid("operator", "the audit needs a name"));
        }
        if order
            .rate
            .is_some_and(|rate| !rate.is_finite() || rate <= 0.0)
        {
            return Err(Error::invalid("rate", "more than 0 per second"));
        }
        Ok(sqlx::query_as(SUBMIT)
            .bind(crate::failure::storable(&operator.name, 200))
            .bind(
                operator
                    .reason
                    .as_deref()
                    .map(|reason| crate::failure::storable(reason, 2_000)),
            )
            .bind(order.action.as_str())
            .bind(Json(&order.filter))
            .bind(order.rate)
            .bind(order.most)
            .bind(order.confirmed)
            .fetch_one(pool)
            .await?)
    }

    /// An order and how far it has come.
    pub async fn operation(&self, pool: &PgPool, id: i64) -> Result<Option<Operation>> {
        Ok(sqlx::query_as(FIND).bind(id).fetch_optional(pool).await?)
    }

    /// Orders, the newest first; go on before the last one's id.
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

    /// Ends an order early; what it has done stays done. False if it had ended.
    pub async fn stop(&self, pool: &PgPool, operator: &Operator, id: i64) -> Result<bool> {
        let name = crate::failure::storable(&operator.name, 200);
        let done = sqlx::query(STOP).bind(id).bind(name).execute(pool).await?;
        Ok(done.rows_affected() > 0)
    }

    /// Writes an order down and does it to its end, here.
    pub async fn carry_out(
        &self,
        pool: &PgPool,
        operator: &Operator,
        order: &Order,
    ) -> Result<Total> {
        let id = self.submit(pool, operator, order).await?.id;
        loop {
            match self.step(pool, id).await? {
                Step::Done | Step::Busy => {}
                Step::Early(wait) => tokio::time::sleep(wait).await,
                Step::Over => break,
            }
        }
        let ended = self.operation(pool, id).await?;
        Ok(ended.map_or_else(Total::default, |ended| Total {
            changed: ended.changed,
            skipped: ended.skipped,
        }))
    }
}
