//! Invariants over the tables of both sides.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering::SeqCst;

use serde_json::Value;
use sqlx::PgPool;
use uuid::Uuid;

use super::cluster::Cluster;

/// Queries that must return zero after any crash, each with the promise it checks.
const INVARIANTS: [(&str, &str); 5] = [
    (
        "select count(*) from wallet.account where balance < 0",
        "no account is below zero",
    ),
    (
        "select count(*) from wallet.account a where balance <>
         (select sum(amount) from wallet.entry e where e.account_id = a.account_id)",
        "balances agree with the books",
    ),
    (
        "select count(*) from (select uuid from wallet.entry group by uuid having sum(amount) <> 0) x",
        "entries sum to zero",
    ),
    (
        "select count(*) from (select uuid from wallet.entry where kind = 'payment'
         group by uuid having count(*) <> 2) x",
        "no uuid is deducted twice",
    ),
    (
        "select count(*) from wallet.inbox i where (i.status = 'SUCCEED') <>
         exists (select from wallet.entry e where e.uuid = i.uuid and e.kind = 'payment')",
        "the inbox agrees with the books",
    ),
];

impl Cluster {
    pub async fn pending(&self) -> Vec<Uuid> {
        uuids(
            &self.pool,
            "select uuid from payments.request where status = 'PENDING'",
        )
        .await
        .into_iter()
        .collect()
    }

    /// Number of published messages that aren't handled, plus those that are
    /// still to be published.
    pub async fn unhandled(&self) -> usize {
        let waiting = "select uuid from payments.outbox where finished_at is null";
        let published = "select uuid from payments.outbox where status = 'PUBLISHED'";
        let handled_or_failed = "select uuid from wallet.inbox union select uuid from wallet.failure where uuid is not null";
        let waiting = uuids(&self.pool, waiting).await.len();
        let published = uuids(&self.pool, published).await;
        let handled_or_failed = uuids(&self.wallet, handled_or_failed).await;
        waiting + published.difference(&handled_or_failed).count()
    }

    pub async fn balances(&self) -> Vec<(String, String)> {
        sqlx::query_as("select account_id, balance::text from wallet.account order by 1")
            .fetch_all(&self.wallet)
            .await
            .unwrap()
    }

    /// Every pending payment reports a reason that matches the tables.
    pub async fn check_reasons(&self) -> Result<(), Value> {
        let pending = self.pending().await;
        let exhausted = "select uuid from payments.outbox where status = 'EXHAUSTED'";
        let exhausted = uuids(&self.pool, exhausted).await;
        for uuid in pending {
            let path = format!("{}/payments/{uuid}", self.base);
            let view = self.http.get(path).send().await.unwrap();
            let view: Value = view.json().await.unwrap();
            let (failed, handled, tombstone): (bool, bool, bool) = sqlx::query_as(
                "select exists (select from wallet.failure where uuid = $1),
                        exists (select from wallet.inbox where uuid = $1 and status <> 'TOMBSTONE'),
                        exists (select from wallet.inbox where uuid = $1 and status = 'TOMBSTONE')",
            )
            .bind(uuid)
            .fetch_one(&self.wallet)
            .await
            .unwrap();
            let exhausted = exhausted.contains(&uuid);
            match view["reason"].as_str() {
                Some("OUTBOX_EXHAUSTED") => assert!(exhausted && !handled && !failed, "{view}"),
                Some("LISTENER_FAILED") => assert!(failed && !handled, "{view}"),
                Some("CALLBACK_FAILED") => assert!(handled, "{view}"),
                // A reconciliation was killed after its tombstone; the next one settles the payment.
                Some("IN_FLIGHT") if tombstone => assert!(!handled, "{view}"),
                // The callback may still be in progress; check again.
                Some("IN_FLIGHT") => return Err(view),
                _ => assert_ne!(view["status"], "PENDING", "{view}"),
            }
        }
        Ok(())
    }

    pub async fn audit(&self) {
        let requests = uuids(&self.pool, "select uuid from payments.request").await;
        let accepted = self.accepted.load(SeqCst);
        assert_eq!(requests.len(), accepted, "every payment was recorded");
        let paid = agree(&self.pool, &self.wallet).await;
        assert!(
            !paid.is_empty(),
            "a run in which nothing succeeds proves nothing"
        );
        let duplicated = self.duplicated.each_ref().map(|count| count.load(SeqCst));
        assert!(
            duplicated.iter().sum::<usize>() > 0,
            "messages were duplicated"
        );
        let ended: Vec<(String, Option<String>, Option<String>, i64)> = sqlx::query_as(
            "select status, reason, settled_by, count(*) from payments.request group by 1, 2, 3 order by 4 desc",
        )
        .fetch_all(&self.pool)
        .await
        .unwrap();
        println!(
            "{accepted} payments over {} in the mode {}, {} kills, {duplicated:?} messages duplicated under their own and \
             under other ids: {ended:?}",
            self.carrier.name(),
            self.mode,
            self.kills.load(SeqCst),
        );
    }
}

/// Checks the books and that both sides agree on every payment; returns the paid ones.
pub async fn agree(requests: &PgPool, wallet: &PgPool) -> BTreeSet<Uuid> {
    for (sql, what) in INVARIANTS {
        let wrong: i64 = sqlx::query_scalar(sql).fetch_one(wallet).await.unwrap();
        assert_eq!(wrong, 0, "{what}");
    }
    let succeeded = "select uuid from payments.request where status = 'SUCCEED'";
    let succeeded = uuids(requests, succeeded).await;
    let deducted = "select uuid from wallet.entry where kind = 'payment'";
    let deducted = uuids(wallet, deducted).await;
    assert_eq!(succeeded, deducted, "requests agree with the books");
    succeeded
}

async fn uuids(pool: &PgPool, sql: &'static str) -> BTreeSet<Uuid> {
    let rows: Vec<Uuid> = sqlx::query_scalar(sql).fetch_all(pool).await.unwrap();
    rows.into_iter().collect()
}
