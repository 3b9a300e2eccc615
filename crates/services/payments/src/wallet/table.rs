//! How `wallet.outbox` maps to a work table, and the doctor's checks.

use postrider::lease::{Finish, States, WorkTable};
use postrider_inspect::doctor::{Check, Severity};

use crate::requests::{COLUMNS, HEADERS};

/// The outbox of callbacks in mode `assured`. States: PENDING, CALLING, DELIVERED (the row is deleted), FAILED, EXHAUSTED.
pub static WALLET_OUTBOX: WorkTable = WorkTable {
    name: "wallet.outbox",
    columns: COLUMNS,
    states: States {
        ready: "PENDING",
        leased: "CALLING",
        waiting: "FAILED",
        done: "DELIVERED",
        dead: "EXHAUSTED",
        cancelled: None,
        archived: None,
    },
    state_type: "text",
    kind: None,
    payload: "json_build_object('uuid', t.uuid, 'status', t.outcome, 'reason', t.reason)",
    headers: Some(HEADERS),
    trace: Some("t.trace"),
    ordering: None,
    finish: Finish::Delete,
    max_losses: 10,
};

/// Invariants of the wallet's accounts and entries.
pub const WALLET_CHECKS: &[Check] = &[
    Check {
        name: "wallet/entries-sum-to-zero",
        severity: Severity::Critical,
        query: "select e.uuid::text from wallet.entry e
                where e.created_at > now() - interval '7 days'
                group by e.uuid, e.currency having sum(e.amount) <> 0 limit 1000",
        what: "payments of the last week whose entries don't sum to zero",
        advice: "stop the wallet, inspect wallet.entry by uuid and report a bug",
    },
    Check {
        name: "wallet/deducted-once",
        severity: Severity::Critical,
        query: "select e.uuid::text from wallet.entry e
                where e.kind = 'payment' and e.created_at > now() - interval '7 days'
                group by e.uuid having count(*) <> 2 limit 1000",
        what: "payments of the last week that were deducted more than once or incompletely",
        advice: "stop the wallet, inspect wallet.entry by uuid and report a bug",
    },
    Check {
        name: "wallet/balance-agrees",
        severity: Severity::Critical,
        query: "select a.account_id from (select account_id, balance from wallet.account order by account_id limit 1000) a
                where a.balance <> (select coalesce(sum(e.amount), 0) from wallet.entry e where e.account_id = a.account_id)",
        what: "accounts whose balance is not the sum of their entries",
        advice: "stop payments from them and compare with wallet.entry; one was changed without the other",
    },
];
