//! How `orders.outbox_orders` maps to a work table, and the doctor's checks.

use postrider::lease::{Columns, Finish, OrderingKeys, States, WorkTable};
use postrider_inspect::doctor::{Check, Severity};

/// The work table of orders. States: pending, sending, succeeded, failed, aborted.
pub static OUTBOX_ORDERS: WorkTable = WorkTable {
    name: "orders.outbox_orders",
    columns: Columns {
        id: "id",
        state: "status",
        attempts: "attempts",
        due: "due",
        lease_until: "locked_until",
        fence: "fence",
        owner: "locked_by",
        losses: "losses",
        finished: "finished_at",
        parked: Some("parked"),
        error_code: "last_error_code",
        error_category: Some("last_error_category"),
        error_message: "last_error_msg",
        cause: Some("cause"),
    },
    states: States {
        ready: "pending",
        leased: "sending",
        waiting: "failed",
        done: "succeeded",
        dead: "aborted",
        cancelled: None,
        archived: None,
    },
    state_type: "text",
    kind: None,
    payload: "json_build_object('key', t.idempotency_key, 'order', t.order_request_json, 'sent', t.sent_at is not null, \
              'expired', coalesce(t.expires_at <= now(), false), \
              'ledger', (select l.status from orders.idempo_ledger l where l.idempotency_key = t.idempotency_key))",
    headers: None,
    trace: None,
    ordering: Some(OrderingKeys {
        column: "ordering_key",
        promote: "orders.promote",
        stranded: "orders.stranded_keys",
    }),
    finish: Finish::Keep,
    max_losses: 10,
};

/// The SQL function that reopens the ledger entries of aborted orders before a redrive.
pub const REOPEN: &str = "orders.reopen";

/// Invariants between the orders and the ledger.
pub const CHECKS: &[Check] = &[
    Check {
        name: "orders/ledger-agrees",
        severity: Severity::Critical,
        query: "select o.idempotency_key from orders.outbox_orders o
                left join orders.idempo_ledger l using (idempotency_key)
                where o.finished_at > now() - interval '7 days'
                  and l.status is distinct from case o.status when 'succeeded' then 'succeeded' else 'failed' end
                limit 1000",
        what: "finished orders whose ledger entry disagrees",
        advice: "inspect each with `postrider orders show KEY`, compare it with the broker, and report a bug",
    },
    Check {
        name: "orders/ledger-entry",
        severity: Severity::Critical,
        query: "select o.idempotency_key from
                    (select idempotency_key, request_digest from orders.outbox_orders where finished_at is null
                     order by due, id limit 10000) o
                left join orders.idempo_ledger l using (idempotency_key)
                where l.request_digest is distinct from o.request_digest limit 1000",
        what: "unfinished orders whose ledger entry is missing or belongs to a different request",
        advice: "do not send them; inspect each with `postrider orders show KEY` and report a bug",
    },
];
