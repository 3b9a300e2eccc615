//! `exports.export_job_input` as a work table, and the invariants that the doctor checks.

use postrider::lease::{Columns, Finish, States, WorkTable};
use postrider_inspect::doctor::{Check, Severity};

use crate::model::JobStatus;

/// The work table: PENDING, RUNNING, SUCCEEDED, RETRY_WAIT, DLQ.
pub static EXPORT_JOB_INPUT: WorkTable = WorkTable {
    name: "exports.export_job_input",
    columns: Columns {
        id: "id",
        state: "status",
        attempts: "attempt_count",
        due: "next_retry_at",
        lease_until: "lease_until",
        fence: "fence",
        owner: "lease_owner",
        losses: "losses",
        finished: "finished_at",
        parked: Some("parked"),
        error_code: "error_code",
        error_category: Some("error_category"),
        error_message: "error_message",
        cause: Some("cause"),
    },
    states: States {
        ready: "PENDING",
        leased: "RUNNING",
        waiting: "RETRY_WAIT",
        done: "SUCCEEDED",
        dead: "DLQ",
        cancelled: None,
        archived: None,
    },
    state_type: "text",
    kind: None,
    // With the fence: files are recorded in batches, by claim.
    payload: "json_build_object('fence', t.fence, 'job', t.job_id, 'indexKey', t.index_key, \
              'effectiveDate', t.effective_date, 'asofindicator', t.asof_indicator)",
    headers: None,
    trace: None,
    ordering: None,
    finish: Finish::Keep,
    max_losses: 10,
};

const JOB_FAILED: &str = "the job is FAILED";
const JOB_CANCELLED: &str = "the job is CANCELLED";

/// Why inputs are parked while their job is closed; a redrive of the job resumes them.
pub const PARKED_REASONS: &[&str] = &[JOB_FAILED, JOB_CANCELLED];

/// Why the inputs of a job with this status are parked.
pub(crate) const fn parked_reason(status: JobStatus) -> &'static str {
    match status {
        JobStatus::Cancelled => JOB_CANCELLED,
        _ => JOB_FAILED,
    }
}

/// Invariants between jobs, inputs and files.
pub const CHECKS: &[Check] = &[
    Check {
        name: "exports/jobs-follow-inputs",
        severity: Severity::Critical,
        query: "select j.job_key from exports.export_job j
                where j.completed_at is null and j.requested_at < now() - interval '5 minutes'
                  and (not exists (select 1 from exports.export_job_input i
                                   where i.job_id = j.job_id and i.finished_at is null)
                       or exists (select 1 from exports.export_job_input i
                                  where i.job_id = j.job_id and i.status = 'DLQ'
                                    and i.finished_at < now() - interval '5 minutes'))
                  and not exists (select 1 from exports.export_job_input i
                                  where i.job_id = j.job_id and i.finished_at > now() - interval '5 minutes')
                limit 1000",
        what: "open jobs whose inputs are all finished, or that have a dead input",
        advice: "make sure that a process with the role scheduler is running: its finalizer closes them",
    },
    Check {
        name: "exports/completed-is-complete",
        severity: Severity::Critical,
        query: "select j.job_key from exports.export_job j
                where j.status = 'COMPLETED' and j.completed_at > now() - interval '7 days'
                  and exists (select 1 from exports.export_job_input i
                              where i.job_id = j.job_id and i.finished_at is null)
                limit 1000",
        what: "completed jobs with unfinished inputs",
        advice: "inspect each with `postrider exports show JOB`; report it as a bug",
    },
    Check {
        name: "exports/parked-with-its-job",
        severity: Severity::Critical,
        query: "select i.id::text from exports.export_job j join exports.export_job_input i using (job_id)
                where j.completed_at is null and i.finished_at is null and i.next_retry_at = 'infinity'
                  and i.parked in ('the job is FAILED', 'the job is CANCELLED')
                limit 1000",
        what: "inputs of open jobs that are parked as if their job were closed: no worker will claim them",
        advice: "set their next_retry_at to now() and their parked to null; report it as a bug",
    },
    Check {
        name: "exports/files-are-registered",
        severity: Severity::Critical,
        query: "select i.s3_path from exports.export_job_input i
                left join exports.export_artifact a using (index_key, effective_date, asof_indicator)
                where i.finished_at > now() - interval '1 day' and i.status = 'SUCCEEDED' and a.artifact_id is null
                limit 1000",
        what: "finished inputs whose file isn't registered in export_artifact",
        advice: "the next job generates the file again; report it as a bug",
    },
];
