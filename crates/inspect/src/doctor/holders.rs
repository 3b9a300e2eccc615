//! What holds vacuum back: open transactions, prepared ones, replication slots. While vacuum can't clean up, claims
//! walk over ever more dead rows.

use super::exam::{Answer, Complaint, Exam, age, interval, size};
use super::{Report, Severity};

/// Sessions of other roles hide their times from a role without this right.
const SEES_ALL: &str = "select pg_has_role(current_user, 'pg_read_all_stats', 'usage')";

const SLOTS: &str = "
select slot_name::text, active, coalesce(wal_status, '') in ('unreserved', 'lost'),
       coalesce(case when pg_is_in_recovery() then 0
                     else pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn) end, 0)::bigint,
       greatest(coalesce(age(xmin), 0), coalesce(age(catalog_xmin), 0))::bigint
from pg_replication_slots where database is null or database = current_database() order by 4 desc limit 100";

/// So many transactions behind is far, even for a busy server.
const FAR_BEHIND: i64 = 10_000_000;

pub(super) async fn examine(exam: &Exam<'_>, report: &mut Report) {
    report.take(
        "vacuum/sight",
        None,
        "the sessions of all roles can be seen",
        sight(exam).await,
    );
    report.take(
        "vacuum/open-transactions",
        None,
        "no transaction is open for long",
        open(exam).await,
    );
    report.take(
        "vacuum/prepared-transactions",
        None,
        "no prepared transaction is left",
        prepared(exam).await,
    );
    report.take(
        "vacuum/replication-slots",
        None,
        "no replication slot is left behind",
        slots(exam).await,
    );
}

async fn sight(exam: &Exam<'_>) -> Answer {
    let (all,): (bool,) = exam.ask_one(SEES_ALL.to_owned()).await?;
    Ok(if all {
        Vec::new()
    } else {
        vec![Complaint::info(
            "this role sees its own sessions alone: transactions of others would go unnoticed"
                .to_owned(),
            "grant it membership in pg_monitor for a full examination",
        )]
    })
}

/// Transactions in other databases hold nothing back here.
async fn open(exam: &Exam<'_>) -> Answer {
    let sql = format!(
        "select s.pid, coalesce(s.usename::text, '?'), coalesce(s.application_name, ''), coalesce(s.state, '?'),
    extract(epoch from clock_timestamp() - s.xact_start)::float8
from pg_stat_activity s
where s.datname = current_database() and s.pid <> pg_backend_pid() and s.backend_type not like 'autovacuum%'
  and s.xact_start < clock_timestamp() - {}
order by s.xact_start limit 100",
        interval(exam.limits.transaction)
    );
    let rows: Vec<(i32, String, String, String, f64)> = exam.ask(sql).await?;
    let Some((.., oldest)) = rows.first() else {
        return Ok(Vec::new());
    };
    let what = format!(
        "{} transactions are open for long, the oldest for {}: vacuum can't remove what was finished since",
        rows.len(),
        age(*oldest)
    );
    let advice = "end them where they come from, or with `select pg_terminate_backend(pid)`; set idle_in_transaction_session_timeout against the next one";
    Ok(vec![
        Complaint::new(by_age(exam, *oldest), what, advice).items(
            rows.into_iter()
                .map(|(pid, user, application, state, since)| {
                    format!(
                        "pid {pid}, {user}, application {application:?}, {state}, {}",
                        age(since)
                    )
                }),
            exam.limits.sample,
        ),
    ])
}

/// Survives a restart of the server, and holds its locks for as long.
async fn prepared(exam: &Exam<'_>) -> Answer {
    let sql = format!(
        "select p.gid, extract(epoch from clock_timestamp() - p.prepared)::float8 from pg_prepared_xacts p
where p.database = current_database() and p.prepared < clock_timestamp() - {} order by p.prepared limit 100",
        interval(exam.limits.transaction)
    );
    let rows: Vec<(String, f64)> = exam.ask(sql).await?;
    let Some((_, oldest)) = rows.first() else {
        return Ok(Vec::new());
    };
    let what = format!(
        "{} prepared transactions were neither committed nor rolled back, the oldest for {}: they hold vacuum back and keep their locks, restarts notwithstanding",
        rows.len(),
        age(*oldest)
    );
    let advice = "ask the transaction manager that made them, then `commit prepared` or `rollback prepared` each by its name";
    Ok(vec![
        Complaint::new(by_age(exam, *oldest), what, advice)
            .items(rows.into_iter().map(|(gid, _)| gid), exam.limits.sample),
    ])
}

fn by_age(exam: &Exam<'_>, oldest: f64) -> Severity {
    if oldest > exam.limits.transaction.as_secs_f64() * 12.0 {
        Severity::Critical
    } else {
        Severity::Warning
    }
}

async fn slots(exam: &Exam<'_>) -> Answer {
    let rows: Vec<(String, bool, bool, i64, i64)> = exam.ask(SLOTS.to_owned()).await?;
    let limit = i64::try_from(exam.limits.slot_bytes).unwrap_or(i64::MAX);
    let mut bad: Vec<String> = Vec::new();
    let mut severity = Severity::Warning;
    for (name, active, lost, held, behind) in rows {
        if held > limit.saturating_mul(10) {
            severity = Severity::Critical;
        }
        if !active || lost || held > limit || behind > FAR_BEHIND {
            let state = if active { "in use" } else { "not in use" };
            bad.push(format!(
                "{name}: {state}, holds {} of log, {behind} transactions behind",
                size(held)
            ));
        }
    }
    if bad.is_empty() {
        return Ok(Vec::new());
    }
    let what = format!(
        "{} replication slots are not in use or far behind: they keep log until the disk is full, and may hold vacuum back",
        bad.len()
    );
    let advice = "bring the replica back, or drop the slot with `select pg_drop_replication_slot(name)`; max_slot_wal_keep_size bounds the damage";
    Ok(vec![
        Complaint::new(severity, what, advice).items(bad, exam.limits.sample),
    ])
}
