//! What holds vacuum back: open and prepared transactions, replication slots. While vacuum can't remove dead rows,
//! claims read more and more of them.

use super::probe::{CheckResult, Issue, Probe, age, interval, size};
use super::{Report, Severity};

/// Without this right, a role can't see the transaction times of other roles' sessions.
const CAN_SEE_ALL: &str = "select pg_has_role(current_user, 'pg_read_all_stats', 'usage')";

const SLOTS: &str = "
select slot_name::text, active, coalesce(wal_status, '') in ('unreserved', 'lost'),
       coalesce(case when pg_is_in_recovery() then 0
                     else pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn) end, 0)::bigint,
       greatest(coalesce(age(xmin), 0), coalesce(age(catalog_xmin), 0))::bigint
from pg_replication_slots where database is null or database = current_database() order by 4 desc limit 100";

/// More is far behind even for a busy server.
const MAX_TRANSACTIONS_BEHIND: i64 = 10_000_000;

pub(super) async fn examine(probe: &Probe<'_>, report: &mut Report) {
    report.add(
        "vacuum/sight",
        None,
        "the sessions of all roles are visible",
        visibility(probe).await,
    );
    report.add(
        "vacuum/open-transactions",
        None,
        "no transaction is open for long",
        open(probe).await,
    );
    report.add(
        "vacuum/prepared-transactions",
        None,
        "no prepared transaction is old",
        prepared(probe).await,
    );
    report.add(
        "vacuum/replication-slots",
        None,
        "no replication slot is unused or far behind",
        slots(probe).await,
    );
}

async fn visibility(probe: &Probe<'_>) -> CheckResult {
    let (all,): (bool,) = probe.query_one(CAN_SEE_ALL.to_owned()).await?;
    Ok(if all {
        Vec::new()
    } else {
        vec![Issue::info(
            "this role sees only its own sessions: open transactions of other roles go unnoticed"
                .to_owned(),
            "grant it membership in pg_monitor",
        )]
    })
}

/// Transactions in other databases don't hold vacuum back here.
async fn open(probe: &Probe<'_>) -> CheckResult {
    let sql = format!(
        "select s.pid, coalesce(s.usename::text, '?'), coalesce(s.application_name, ''), coalesce(s.state, '?'),
    extract(epoch from clock_timestamp() - s.xact_start)::float8
from pg_stat_activity s
where s.datname = current_database() and s.pid <> pg_backend_pid() and s.backend_type not like 'autovacuum%'
  and s.xact_start < clock_timestamp() - {}
order by s.xact_start limit 100",
        interval(probe.limits.transaction)
    );
    let rows: Vec<(i32, String, String, String, f64)> = probe.query(sql).await?;
    let Some((.., oldest)) = rows.first() else {
        return Ok(Vec::new());
    };
    let what = format!(
        "{} transactions are open for long, the oldest for {}: vacuum can't remove rows that died since",
        rows.len(),
        age(*oldest)
    );
    let advice = "end them at their source, or with `select pg_terminate_backend(pid)`; set idle_in_transaction_session_timeout to prevent the next one";
    Ok(vec![
        Issue::new(by_age(probe, *oldest), what, advice).items(
            rows.into_iter()
                .map(|(pid, user, application, state, since)| {
                    format!(
                        "pid {pid}, {user}, application {application:?}, {state}, {}",
                        age(since)
                    )
                }),
            probe.limits.sample,
        ),
    ])
}

/// Prepared transactions and their locks survive a restart of the server.
async fn prepared(probe: &Probe<'_>) -> CheckResult {
    let sql = format!(
        "select p.gid, extract(epoch from clock_timestamp() - p.prepared)::float8 from pg_prepared_xacts p
where p.database = current_database() and p.prepared < clock_timestamp() - {} order by p.prepared limit 100",
        interval(probe.limits.transaction)
    );
    let rows: Vec<(String, f64)> = probe.query(sql).await?;
    let Some((_, oldest)) = rows.first() else {
        return Ok(Vec::new());
    };
    let what = format!(
        "{} prepared transactions were neither committed nor rolled back, the oldest for {}: they hold vacuum back and keep their locks, even after a restart",
        rows.len(),
        age(*oldest)
    );
    let advice = "check with the transaction manager that created them, then `commit prepared` or `rollback prepared` each by name";
    Ok(vec![
        Issue::new(by_age(probe, *oldest), what, advice)
            .items(rows.into_iter().map(|(gid, _)| gid), probe.limits.sample),
    ])
}

fn by_age(probe: &Probe<'_>, oldest: f64) -> Severity {
    if oldest > probe.limits.transaction.as_secs_f64() * 12.0 {
        Severity::Critical
    } else {
        Severity::Warning
    }
}

async fn slots(probe: &Probe<'_>) -> CheckResult {
    let rows: Vec<(String, bool, bool, i64, i64)> = probe.query(SLOTS.to_owned()).await?;
    let limit = i64::try_from(probe.limits.slot_bytes).unwrap_or(i64::MAX);
    let mut bad: Vec<String> = Vec::new();
    let mut severity = Severity::Warning;
    for (name, active, lost, held, behind) in rows {
        if held > limit.saturating_mul(10) {
            severity = Severity::Critical;
        }
        if !active || lost || held > limit || behind > MAX_TRANSACTIONS_BEHIND {
            let state = if active { "in use" } else { "not in use" };
            bad.push(format!(
                "{name}: {state}, retains {} of WAL, {behind} transactions behind",
                size(held)
            ));
        }
    }
    if bad.is_empty() {
        return Ok(Vec::new());
    }
    let what = format!(
        "{} replication slots are not in use or far behind: they retain WAL until the disk is full and may hold vacuum back",
        bad.len()
    );
    let advice = "bring the replica back, or drop the slot with `select pg_drop_replication_slot(name)`; max_slot_wal_keep_size limits the damage";
    Ok(vec![
        Issue::new(severity, what, advice).items(bad, probe.limits.sample),
    ])
}
