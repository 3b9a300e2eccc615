//! Many keys in one transaction, for callers that share a commit.

use std::collections::{HashMap, HashSet};

use sqlx::PgConnection;

use super::{Acceptance, Entry, Key, Ledger, LedgerError, record};
use crate::{digest::Digest, lock_wait};

/// Sorted, so that two batches with the same keys wait for each other instead of deadlocking.
const ACCEPT_MANY: &str = "
with bound as materialized (select set_config('lock_timeout', $4, true)),
     first as (insert into postrider.ledger (scope, key, digest)
               select wanted.scope, wanted.key, wanted.digest
               from bound, unnest($1::text[], $2::text[], $3::bytea[]) as wanted (scope, key, digest)
               order by wanted.scope, wanted.key
               on conflict (scope, key) do nothing
               returning scope, key)
select scope, key from first";

const RECORDED_MANY: &str = "
select l.scope, l.key, l.digest, l.state, l.result, l.created_at, l.finished_at
from unnest($1::text[], $2::text[]) as wanted (scope, key)
join postrider.ledger l using (scope, key)";

#[derive(sqlx::FromRow)]
struct KeyedRow {
    scope: String,
    key: String,
    digest: Vec<u8>,
    state: String,
    result: Option<serde_json::Value>,
    created_at: time::OffsetDateTime,
    finished_at: Option<time::OffsetDateTime>,
}

impl Ledger {
    /// [`Ledger::accept`] for many requests, with answers in their order.
    ///
    /// Requests with the same key within the batch are treated as if they had come one after the other. The lock
    /// timeout applies to each contested key; keep such batches small, or route equal keys to the same writer.
    pub async fn accept_many(
        &self,
        tx: &mut PgConnection,
        requests: &[(Key, Digest)],
    ) -> Result<Vec<Acceptance>, LedgerError> {
        let mut leaders: HashMap<&Key, &Digest> = HashMap::new();
        for (key, digest) in requests {
            leaders.entry(key).or_insert(digest);
        }
        let mut won = self.insert_new(tx, &leaders).await?;
        let taken: Vec<&Key> = leaders
            .keys()
            .copied()
            .filter(|key| !won.contains(*key))
            .collect();
        let mut recorded = read(tx, &taken).await?;
        // New entries answer the batch's own repetitions: read them too, if there are any.
        if leaders.len() < requests.len() {
            let fresh: Vec<&Key> = won.iter().collect();
            recorded.extend(read(tx, &fresh).await?);
        }
        requests
            .iter()
            .map(|(key, digest)| {
                if won.remove(key) {
                    return Ok(Acceptance::Accepted);
                }
                let entry = recorded.get(key).ok_or(LedgerError::Busy {
                    retry_after: self.lock_timeout,
                })?;
                Ok(entry.clone().answer(digest))
            })
            .collect()
    }

    /// Inserts what is new; returns those keys.
    async fn insert_new(
        &self,
        tx: &mut PgConnection,
        wanted: &HashMap<&Key, &Digest>,
    ) -> Result<HashSet<Key>, LedgerError> {
        let (keys, digests): (Vec<&Key>, Vec<&[u8]>) = wanted
            .iter()
            .map(|(key, digest)| (*key, &digest.as_bytes()[..]))
            .unzip();
        let (scopes, names) = columns(&keys);
        let rows: Vec<(String, String)> = sqlx::query_as(ACCEPT_MANY)
            .bind(scopes)
            .bind(names)
            .bind(digests)
            .bind(lock_wait::setting(self.lock_timeout))
            .fetch_all(tx)
            .await?;
        Ok(rows
            .into_iter()
            .map(|(scope, key)| Key::stored(scope, key))
            .collect())
    }
}

async fn read(tx: &mut PgConnection, keys: &[&Key]) -> Result<HashMap<Key, Entry>, LedgerError> {
    if keys.is_empty() {
        return Ok(HashMap::new());
    }
    let (scopes, names) = columns(keys);
    let rows: Vec<KeyedRow> = sqlx::query_as(RECORDED_MANY)
        .bind(scopes)
        .bind(names)
        .fetch_all(tx)
        .await?;
    rows.into_iter()
        .map(|row| {
            let columns: record::Row = (
                row.digest,
                row.state,
                row.result,
                row.created_at,
                row.finished_at,
            );
            Ok((Key::stored(row.scope, row.key), Entry::try_from(columns)?))
        })
        .collect()
}

fn columns<'a>(keys: &[&'a Key]) -> (Vec<&'a str>, Vec<&'a str>) {
    keys.iter().map(|key| (key.scope(), key.key())).unzip()
}
