//! The words in which the two outboxes speak the engine's lifecycle, and what must hold between the tables.

use postrider::lease::{Columns, Finish, States, WorkTable};
use postrider_inspect::doctor::{Check, Severity};

const COLUMNS: Columns = Columns {
    id: "id",
    state: "status",
    attempts: "try_count",
    due: "due",
    lease_until: "locked_until",
    fence: "fence",
    owner: "locked_by",
    losses: "losses",
    finished: "finished_at",
    parked: None,
    error_code: "last_error_code",
    error_category: Some("last_error_category"),
    error_message: "last_error",
    cause: Some("cause"),
};

const HEADERS: &str =
    "case when t.tracestate is not null then json_build_object('tracestate', t.tracestate) end";

/// The orchestrator's messages: PENDING, PUBLISHING, PUBLISHED, FAILED, EXHAUSTED.
pub static OUTBOX: WorkTable = WorkTable {
    name: "payments.outbox",
    columns: COLUMNS,
    states: States {
        ready: "PENDING",
        leased: "PUBLISHING",
        waiting: "FAILED",
        done: "PUBLISHED",
        dead: "EXHAUSTED",
        cancelled: None,
        archived: None,
    },
    state_type: "text",
    kind: None,
    payload: "t.payload",
    headers: Some(HEADERS),
    trace: Some("t.trace"),
    ordering: None,
    finish: Finish::Keep,
    max_losses: 10,
};

/// The wallet's call backs in the mode `assured`: PENDING, CALLING, DELIVERED (the row goes), FAILED, EXHAUSTED.
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

/// What must hold of requests and messages, and of a wallet in the same database.
pub const CHECKS: &[Check] = &[
    MESSAGES,
    WALLET_CHECKS[0],
    WALLET_CHECKS[1],
    WALLET_CHECKS[2],
];

const MESSAGES: Check = Check {
    name: "payments/message",
    severity: Severity::Critical,
    query: "select r.uuid::text from payments.request r left join payments.outbox o using (uuid)
            where r.status = 'PENDING' and o.uuid is null
              and r.uuid::text not in (select a.item ->> 'uuid' from postrider.archive a where a.work_table = 'payments.outbox')
            limit 1000",
    what: "pending payments whose message is neither in the outbox nor archived",
    advice: "settle them with `postrider payments reconcile`; report it as a bug",
};

/// What must hold of the wallet's books.
pub const WALLET_CHECKS: &[Check] = &[
    Check {
        name: "wallet/entries-sum-to-zero",
        severity: Severity::Critical,
        query: "select e.uuid::text from wallet.entry e
                where e.created_at > now() - interval '7 days'
                group by e.uuid, e.currency having sum(e.amount) <> 0 limit 1000",
        what: "movements of the last week whose entries do not sum to zero",
        advice: "stop paying and look at wallet.entry by uuid; report it as a bug",
    },
    Check {
        name: "wallet/deducted-once",
        severity: Severity::Critical,
        query: "select e.uuid::text from wallet.entry e
                where e.kind = 'payment' and e.created_at > now() - interval '7 days'
                group by e.uuid having count(*) <> 2 limit 1000",
        what: "payments of the last week that were deducted more than once, or by half",
        advice: "stop paying and look at wallet.entry by uuid; report it as a bug",
    },
    Check {
        name: "wallet/balance-agrees",
        severity: Severity::Critical,
        query: "select a.account_id from (select account_id, balance from wallet.account order by account_id limit 1000) a
                where a.balance <> (select coalesce(sum(e.amount), 0) from wallet.entry e where e.account_id = a.account_id)",
        what: "accounts whose balance is not the sum of their entries",
        advice: "stop paying from them and compare with wallet.entry; somebody changed one without the other",
    },
];
