//! How `payments.outbox` maps to a work table, and the doctor's check.

use postrider::lease::{Columns, Finish, States, WorkTable};
use postrider_inspect::doctor::{Check, Severity};

/// The columns of both outboxes.
pub(crate) const COLUMNS: Columns = Columns {
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

pub(crate) const HEADERS: &str =
    "case when t.tracestate is not null then json_build_object('tracestate', t.tracestate) end";

/// The outbox of payment messages. States: PENDING, PUBLISHING, PUBLISHED, FAILED, EXHAUSTED.
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

/// Every pending payment has a message.
pub(crate) const MESSAGE_CHECK: Check = Check {
    name: "payments/message",
    severity: Severity::Critical,
    query: "select r.uuid::text from payments.request r left join payments.outbox o using (uuid)
            where r.status = 'PENDING' and o.uuid is null
              and r.uuid::text not in (select a.item ->> 'uuid' from postrider.archive a where a.work_table = 'payments.outbox')
            limit 1000",
    what: "pending payments whose message is neither in the outbox nor archived",
    advice: "settle them with `postrider payments reconcile` and report a bug",
};
