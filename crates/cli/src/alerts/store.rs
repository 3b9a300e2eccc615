//! Recorded alerts, in `postrider.alert`.

use sqlx::{PgConnection, PgPool};
use time::OffsetDateTime;
use uuid::Uuid;

use super::{Alert, AlertState, OpenAlert, RULES, Severity, rule::Rule};

/// Maximum number of alerts in a listing.
const MAX_LISTED: i64 = 500;

const NOW: &str = "select clock_timestamp()";

/// Concurrent evaluations wait here.
const OPEN: &str = "
select id, rule, subject, since, fired_at is not null as fired
from postrider.alert where resolved_at is null order by id for update";

const INSERT: &str = "
insert into postrider.alert (id, rule, subject, severity, value, since, fired_at)
values ($1, $2, $3, $4, $5, $6, case when $7 then $6 end)
on conflict (rule, subject) where resolved_at is null do nothing
returning id";

const UPDATE: &str = "
update postrider.alert a set value = n.value
from unnest($1::uuid[], $2::float8[]) n(id, value) where a.id = n.id and a.value <> n.value";

const FIRE: &str = "
update postrider.alert set fired_at = $2, value = $3 where id = $1 and fired_at is null and resolved_at is null";

const RESOLVE: &str = "
update postrider.alert set resolved_at = $2 where id = $1 and resolved_at is null";

const DISCARD: &str = "delete from postrider.alert where id = any($1) and fired_at is null";

/// Resolved alerts are kept for a week.
const DELETE_OLD: &str =
    "delete from postrider.alert where resolved_at < clock_timestamp() - interval '7 days'";

/// Firing, pending, and resolved within a day.
const LIST: &str = "
select id, rule, subject, value, since, fired_at, resolved_at
from postrider.alert
where resolved_at is null or resolved_at > clock_timestamp() - interval '1 day'
order by (resolved_at is null) desc, (fired_at is not null) desc, severity, fired_at desc, since desc, id
limit $1";

const ONE: &str = "
select id, rule, subject, value, since, fired_at, resolved_at from postrider.alert where id = $1";

#[derive(sqlx::FromRow)]
struct Row {
    id: Uuid,
    rule: String,
    subject: String,
    value: f64,
    since: OffsetDateTime,
    fired_at: Option<OffsetDateTime>,
    resolved_at: Option<OffsetDateTime>,
}

impl From<Row> for Alert {
    fn from(row: Row) -> Self {
        let state = match (row.fired_at, row.resolved_at) {
            (_, Some(_)) => AlertState::Resolved,
            (Some(_), None) => AlertState::Firing,
            (None, None) => AlertState::Pending,
        };
        let rule = RULES.iter().find(|rule| rule.name == row.rule);
        Self {
            id: row.id,
            severity: rule.map_or(Severity::Warning, |rule| rule.severity),
            state,
            value: row.value,
            // A rule of another version of the program; the next evaluation resolves it.
            summary: rule.map_or_else(|| row.rule.clone(), |rule| rule.summary_of(&row.subject)),
            advice: rule.map_or("", |rule| rule.advice).to_owned(),
            name: row.rule,
            subject: row.subject,
            since: row.since,
            fired_at: row.fired_at,
            resolved_at: row.resolved_at,
        }
    }
}

/// Firing alerts first, then pending ones, then those resolved within a day; the most severe first.
pub async fn list(pool: &PgPool) -> Result<Vec<Alert>, sqlx::Error> {
    let rows: Vec<Row> = sqlx::query_as(LIST)
        .bind(MAX_LISTED)
        .fetch_all(pool)
        .await?;
    Ok(rows.into_iter().map(Alert::from).collect())
}

pub(super) async fn one(tx: &mut PgConnection, id: Uuid) -> Result<Alert, sqlx::Error> {
    let row: Row = sqlx::query_as(ONE).bind(id).fetch_one(tx).await?;
    Ok(row.into())
}

pub(super) async fn now(tx: &mut PgConnection) -> Result<OffsetDateTime, sqlx::Error> {
    sqlx::query_scalar(NOW).fetch_one(tx).await
}

pub(super) async fn open(tx: &mut PgConnection) -> Result<Vec<OpenAlert>, sqlx::Error> {
    let rows: Vec<(Uuid, String, String, OffsetDateTime, bool)> =
        sqlx::query_as(OPEN).fetch_all(tx).await?;
    Ok(rows
        .into_iter()
        .map(|(id, rule, subject, since, fired)| OpenAlert {
            id,
            rule,
            subject,
            since,
            fired,
        })
        .collect())
}

/// None if another process was first.
pub(super) async fn insert(
    tx: &mut PgConnection,
    rule: &Rule,
    subject: &str,
    value: f64,
    now: OffsetDateTime,
    fires: bool,
) -> Result<Option<Uuid>, sqlx::Error> {
    sqlx::query_scalar(INSERT)
        .bind(Uuid::now_v7())
        .bind(rule.name)
        .bind(subject)
        .bind(rule.severity.as_str())
        .bind(value)
        .bind(now)
        .bind(fires)
        .fetch_optional(tx)
        .await
}

pub(super) async fn update(
    tx: &mut PgConnection,
    ids: &[Uuid],
    values: &[f64],
) -> Result<(), sqlx::Error> {
    sqlx::query(UPDATE)
        .bind(ids)
        .bind(values)
        .execute(tx)
        .await
        .map(drop)
}

/// False if it had fired before.
pub(super) async fn fire(
    tx: &mut PgConnection,
    id: Uuid,
    now: OffsetDateTime,
    value: f64,
) -> Result<bool, sqlx::Error> {
    let done = sqlx::query(FIRE).bind(id).bind(now).bind(value);
    Ok(done.execute(tx).await?.rows_affected() == 1)
}

/// False if it was resolved before.
pub(super) async fn resolve(
    tx: &mut PgConnection,
    id: Uuid,
    now: OffsetDateTime,
) -> Result<bool, sqlx::Error> {
    let done = sqlx::query(RESOLVE).bind(id).bind(now);
    Ok(done.execute(tx).await?.rows_affected() == 1)
}

pub(super) async fn discard(tx: &mut PgConnection, ids: &[Uuid]) -> Result<(), sqlx::Error> {
    sqlx::query(DISCARD).bind(ids).execute(tx).await.map(drop)
}

pub(super) async fn delete_old(tx: &mut PgConnection) -> Result<(), sqlx::Error> {
    sqlx::query(DELETE_OLD).execute(tx).await.map(drop)
}
