//! The work table of the service, and its invariants for the doctor.

use postrider::lease::{Columns, Finish, States, WorkTable};
use postrider_inspect::doctor::{Check, Severity};

/// The work table. States: pending, processing, published, failed, dead_letter.
pub static OUTBOX: WorkTable = WorkTable {
    name: "protocols.outbox",
    columns: Columns {
        id: "id",
        state: "status",
        attempts: "retry_count",
        due: "due",
        lease_until: "locked_until",
        fence: "fence",
        owner: "locked_by",
        losses: "losses",
        finished: "finished_at",
        parked: None,
        error_code: "error_code",
        error_category: Some("error_category"),
        error_message: "error_message",
        cause: Some("cause"),
    },
    states: States {
        ready: "pending",
        leased: "processing",
        waiting: "failed",
        done: "published",
        dead: "dead_letter",
        cancelled: None,
        archived: None,
    },
    state_type: "text",
    kind: Some("event_type"),
    payload: "json_build_object('protocol_id', t.protocol_id, 'try', t.try, \
              'age', extract(epoch from now() - t.created_at)::float8)",
    headers: None,
    trace: None,
    ordering: None,
    finish: Finish::Keep,
    max_losses: 10,
};

/// Invariants between protocols and their events.
pub const CHECKS: &[Check] = &[
    Check {
        name: "protocols/has-event",
        severity: Severity::Critical,
        query: "select p.id::text from protocols.protocol p
                where p.status in ('uploaded', 'extracting', 'extraction_failed', 'grounding', 'grounding_failed')
                  and not exists (select 1 from protocols.outbox o
                                  where o.protocol_id = p.id and o.try = p.try and o.finished_at is null)
                limit 1000",
        what: "protocols in progress without an event that would continue them",
        advice: "retry a failed one with `postrider protocols retry ID`, and report this as a bug",
    },
    Check {
        name: "protocols/old-try-retired",
        severity: Severity::Critical,
        query: "select o.id::text from protocols.outbox o join protocols.protocol p on p.id = o.protocol_id
                where o.finished_at is null
                  and (o.try <> p.try or p.status in ('pending_review', 'complete', 'archived'))
                limit 1000",
        what: "unfinished events of an older try, or of a protocol that has left the pipeline",
        advice: "they will have no effect; report this as a bug",
    },
];
