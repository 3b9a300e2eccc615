//! Attach tasks as a work table, and the invariants that the doctor checks.

use postrider::lease::{Columns, Finish, States, WorkTable};
use postrider_inspect::doctor::{Check, Severity};

/// One task per attach event that arrived.
pub static ATTACH_TASKS: WorkTable = WorkTable {
    name: "evidence.attach_task",
    columns: Columns::STANDARD,
    states: States::STANDARD,
    state_type: "postrider.work_state",
    kind: None,
    payload: "json_build_object('event_id', t.event_id, 'file_job_id', t.file_job_id, \
              'file_job_row_id', t.file_job_row_id, 'is_retry', t.is_retry)",
    headers: None,
    trace: None,
    ordering: None,
    finish: Finish::Delete,
    max_losses: 10,
};

/// Invariants between jobs, rows and artifacts.
pub const CHECKS: &[Check] = &[
    Check {
        name: "evidence/rows-follow-artifacts",
        severity: Severity::Critical,
        query: "select r.id::text from evidence.file_job_row r
                join lateral (
                    select count(*) as total,
                           count(*) filter (where a.attachment_status = 'ATTACHED') as attached,
                           count(*) filter (where a.attachment_status = 'FAILED') as failed
                    from evidence.file_job_artifact a where a.file_job_row_id = r.id) a on true
                where r.updated_at > now() - interval '7 days'
                  and (r.evidence_count, r.evidence_attached_count, r.evidence_failed_count)
                      is distinct from (a.total, a.attached, a.failed)
                limit 1000",
        what: "rows whose counts don't match their artifacts",
        advice: "inspect the job with `postrider evidence show ID`; report it as a bug",
    },
    Check {
        name: "evidence/counts-follow-journal",
        severity: Severity::Critical,
        query: "select a.id::text from evidence.file_job_artifact a
                where a.updated_at > now() - interval '7 days' and a.attempt_count > 0
                  and a.attempt_count <> (select count(*) from evidence.attach_attempt t
                                          where t.artifact_id = a.id and t.outcome <> 'LOST')
                limit 1000",
        what: "artifacts whose attempt_count doesn't match the attempt log",
        advice: "compare with the Case API's own log; report it as a bug",
    },
    Check {
        name: "evidence/markers-have-notifications",
        severity: Severity::Critical,
        query: "select j.id::text from evidence.file_job j
                where (j.n1_sent_at is not null) <> exists (
                          select from evidence.notification n where n.file_job_id = j.id and n.kind = 'evidence.n1')
                   or (j.n2_sent_at is not null) <> exists (
                          select from evidence.notification n where n.file_job_id = j.id and n.kind = 'evidence.n2')
                limit 1000",
        what: "jobs whose N1 or N2 marker and notification disagree",
        advice: "inspect the job with `postrider evidence show ID`; report it as a bug",
    },
];
