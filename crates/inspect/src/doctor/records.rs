//! One effect (I5), one clock (I6), terminal states are final (I7): checks of the library's own records.

use super::probe::{CheckResult, Issue, Probe, age, interval};
use super::table_view::TableView;
use super::{Report, Severity};

/// Pages of the ledger to read, approximately; a larger ledger is sampled.
const LEDGER_PAGES: f64 = 8_000.0;

const LEDGER_SIZE: &str = "
select (pg_relation_size('postrider.ledger') / current_setting('block_size')::bigint)::float8";

/// Age of the inbox's oldest id in seconds. Index: inbox_received_at.
const INBOX_OLDEST: &str = "
select extract(epoch from clock_timestamp() - min(received_at))::float8 from postrider.inbox";

/// Heartbeats from the future: the clock was set back after they were written.
const FUTURE: &str = "
select s.who, s.ahead from (
    select 'leader ' || name, extract(epoch from heartbeat - clock_timestamp())::float8 from postrider.leader
    union all
    select 'worker ' || name, extract(epoch from seen_at - clock_timestamp())::float8 from postrider.worker
) s (who, ahead) where s.ahead > 5 order by s.ahead desc limit 10";

pub(super) async fn examine(probe: &Probe<'_>, report: &mut Report) {
    report.add(
        "I5/ledger",
        None,
        "accepted requests get their result in time",
        ledger(probe).await,
    );
    report.add(
        "I5/inbox-pruning",
        None,
        "the inbox is cleaned up",
        inbox_pruning(probe).await,
    );
    report.add(
        "I6/clock-went-back",
        None,
        "no heartbeat is from the future",
        future(probe).await,
    );
}

pub(super) async fn examine_table(probe: &Probe<'_>, view: &TableView<'_>, report: &mut Report) {
    let table = Some(view.name());
    report.add(
        "I5/inbox-retention",
        table,
        "no item waits longer than the inbox retention",
        inbox_retention(probe, view).await,
    );
    report.add(
        "I7/risen",
        table,
        "no item left a terminal state without an audit entry",
        resurrected(probe, view).await,
    );
    report.add(
        "I7/vanished",
        table,
        "every dead letter of the last day exists or has a record",
        vanished(probe, view).await,
    );
    report.add(
        "dead-letters",
        table,
        "no dead letters",
        dead_letters(probe, view).await,
    );
}

async fn ledger(probe: &Probe<'_>) -> CheckResult {
    let (pages,): (f64,) = probe.query_one(LEDGER_SIZE.to_owned()).await?;
    let percent = (LEDGER_PAGES / pages.max(1.0) * 100.0).min(100.0);
    let sql = format!(
        "select l.scope, count(*), max(extract(epoch from clock_timestamp() - l.created_at))::float8
from postrider.ledger l tablesample system ({percent})
where l.state = 'accepted' and l.created_at < clock_timestamp() - {}
group by 1 order by 2 desc limit {}",
        interval(probe.limits.ledger_open),
        probe.limits.sample,
    );
    let rows: Vec<(String, i64, f64)> = probe.query(sql).await?;
    if rows.is_empty() {
        return Ok(Vec::new());
    }
    let count: i64 = rows.iter().map(|row| row.1).sum();
    let oldest = age(rows.iter().map(|row| row.2).fold(0.0, f64::max));
    let sample = if percent < 100.0 {
        format!(" (in a sample of {percent:.1} % of the ledger)")
    } else {
        String::new()
    };
    let what = format!(
        "at least {count} accepted requests have no result, the oldest for {oldest}{sample}"
    );
    let advice = "find the work behind them (dead letters, parked items): the transaction that settles it must also finish the ledger entry; the scopes are listed below";
    Ok(vec![
        Issue::warning(what, advice).items(
            rows.into_iter()
                .map(|(scope, count, _)| format!("{scope}: {count}")),
            probe.limits.sample,
        ),
    ])
}

async fn inbox_pruning(probe: &Probe<'_>) -> CheckResult {
    let (oldest,): (Option<f64>,) = probe.query_one(INBOX_OLDEST.to_owned()).await?;
    let retention = probe.limits.inbox_retention.as_secs_f64();
    Ok(match oldest {
        Some(oldest) if oldest > retention * 1.5 => vec![Issue::info(
            format!(
                "the inbox holds ids for {}, although its retention is {}: it keeps growing",
                age(oldest),
                age(retention)
            ),
            "check that a scheduler is running (`postrider serve` with the scheduler role); it deletes old ids",
        )],
        _ => Vec::new(),
    })
}

async fn future(probe: &Probe<'_>) -> CheckResult {
    let rows: Vec<(String, f64)> = probe.query(FUTURE.to_owned()).await?;
    let Some((_, max)) = rows.first() else {
        return Ok(Vec::new());
    };
    let what = format!(
        "the database's clock was set back: heartbeats are up to {} in the future",
        age(*max)
    );
    let advice = "leases and due times are late by as much, once; keep the server's clock with NTP, slewing and not stepping";
    Ok(vec![Issue::warning(what, advice).items(
        rows.into_iter().map(|(who, _)| who),
        probe.limits.sample,
    )])
}

/// When such an item is delivered at last, the consumer's inbox may have forgotten an earlier delivery.
async fn inbox_retention(probe: &Probe<'_>, view: &TableView<'_>) -> CheckResult {
    let condition = format!(
        "w.due < now() - {} and w.due > '-infinity'",
        interval(probe.limits.inbox_retention)
    );
    let matches = view
        .find_since(probe, &view.head(), &condition, "w.due")
        .await?;
    let retention = age(probe.limits.inbox_retention.as_secs_f64());
    let oldest = age(matches.oldest);
    Ok(view.issues(
        &matches,
        Severity::Warning,
        |items| format!("{items} are due for longer than the inbox retention ({retention}), the oldest for {oldest}: a redelivery would not be recognised"),
        "raise the inbox retention before these items run, or cancel them",
    ))
}

/// Dead by the attempt log, unfinished now, and no audit entry explains it.
async fn resurrected(probe: &Probe<'_>, view: &TableView<'_>) -> CheckResult {
    let window = format!(
        "(select w.*, (select max(a.at) from postrider.attempt a
        where a.work_table = '{table}' and a.item_id = w.id and a.outcome = 'dead') as died
    from {head} offset 0) w",
        table = view.name(),
        head = view.head()
    );
    // The time of an action is when its transaction began, which may be shortly before the death that it saw.
    let condition = format!(
        "w.died is not null and not exists (
    select from postrider.audit u where u.at >= w.died - interval '1 minute' and u.work_table = '{}' and w.id = any (u.items))",
        view.name()
    );
    let matches = view
        .find_since(probe, &window, &condition, "w.died")
        .await?;
    Ok(view.issues(
        &matches,
        Severity::Critical,
        |items| format!("{items} were dead and are unfinished again without an audit entry"),
        "they were changed by hand: use redrive, which writes the audit log; cancel these if they should not run",
    ))
}

/// Dead by the attempt log, and neither the item nor a record of its removal exists.
async fn vanished(probe: &Probe<'_>, view: &TableView<'_>) -> CheckResult {
    let sql = format!(
        "select d.item_id from (
    select a.item_id, max(a.at) as died from postrider.attempt a
    where a.at > now() - interval '1 day' and a.work_table = '{table}' and a.outcome = 'dead'
    group by 1 limit {window}) d
where not exists (select from {table} t where t.{id} = d.item_id)
  and not exists (select from postrider.archive r where r.work_table = '{table}' and r.item_id = d.item_id)
  and not exists (select from postrider.audit u
                  where u.at >= d.died - interval '1 minute' and u.work_table = '{table}' and d.item_id = any (u.items))
order by 1 limit {window}",
        table = view.name(),
        id = view.table.columns.id,
        window = view.limits.window,
    );
    let rows: Vec<(i64,)> = probe.query(sql).await?;
    if rows.is_empty() {
        return Ok(Vec::new());
    }
    let what = format!(
        "at least {} dead letters of the last day are gone without an entry in the archive or the audit log",
        rows.len()
    );
    let advice = "they were deleted by hand: restore them from a backup if needed, and use archive, which keeps them";
    Ok(vec![Issue::critical(what, advice).items(
        rows.into_iter().map(|(id,)| id),
        view.limits.sample,
    )])
}

async fn dead_letters(probe: &Probe<'_>, view: &TableView<'_>) -> CheckResult {
    /// Enough to find the common failures.
    const SAMPLE_SIZE: usize = 1_000;
    let dead = view.dead();
    let (count, oldest): (i64, f64) = probe
        .query_one(format!(
            "select count(*), coalesce(max(extract(epoch from clock_timestamp() - d.finished)), 0)::float8 from {dead}"
        ))
        .await?;
    if count == 0 {
        return Ok(Vec::new());
    }
    let rows: Vec<(Option<String>, Option<String>)> = probe
        .query(format!(
            "select d.code, d.message from {dead} order by d.finished desc limit {SAMPLE_SIZE}"
        ))
        .await?;
    let mut groups = std::collections::HashMap::<String, usize>::new();
    for (code, message) in rows {
        let signature = postrider::failure::signature(message.as_deref().unwrap_or_default());
        let code = code.unwrap_or_default();
        *groups.entry(format!("{code}: {signature}")).or_default() += 1;
    }
    let mut groups: Vec<(String, usize)> = groups.into_iter().collect();
    groups.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    let least = if count >= i64::from(view.limits.window) {
        "at least "
    } else {
        ""
    };
    let plural = if count == 1 { "" } else { "s" };
    let what = format!(
        "{least}{count} dead letter{plural}, the oldest for {}; the most common reasons of the latest are listed below",
        age(oldest)
    );
    let advice =
        "fix the cause first, then redrive them, or archive those that are no longer needed";
    Ok(vec![
        Issue::warning(what, advice).items(
            groups
                .into_iter()
                .map(|(reason, count)| format!("{count} × {reason}")),
            5,
        ),
    ])
}
