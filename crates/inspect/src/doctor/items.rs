//! Items of a work table: nothing lost (I1), one owner (I2), crashes recover (I3), bounded attempts (I4).

use super::probe::{CheckResult, Issue, Probe, age, interval};
use super::table_view::TableView;
use super::{Report, Severity};

pub(super) async fn examine(
    probe: &Probe<'_>,
    view: &TableView<'_>,
    max_attempts: Option<u32>,
    parked_reasons: &[&str],
    report: &mut Report,
) {
    let table = Some(view.name());
    let mut add = |check, healthy, result| report.add(check, table, healthy, result);
    add(
        "I1/state",
        "every item is either unfinished or finished",
        state(probe, view).await,
    );
    add(
        "I1/due",
        "every unfinished item has a due time",
        due(probe, view).await,
    );
    add(
        "I1/stranded-keys",
        "every ordering key has a first item",
        stranded_keys(probe, view).await,
    );
    add(
        "I1/parked",
        "nothing is parked for long",
        parked(probe, view, parked_reasons).await,
    );
    add(
        "I1/unhandled",
        "a live worker handles every due item",
        unhandled(probe, view).await,
    );
    add(
        "I1/unroutable",
        "every message has a subscription",
        unroutable(probe, view).await,
    );
    add(
        "I1/overdue",
        "nothing is overdue for long",
        overdue(probe, view).await,
    );
    add(
        "I2/lease",
        "leases are consistent",
        lease(probe, view).await,
    );
    add(
        "I2/shared-fence",
        "no fence has two owners",
        shared_fence(probe, view).await,
    );
    add(
        "I3/expired-leases",
        "expired leases are rescued",
        expired(probe, view).await,
    );
    add(
        "I3/endless-leases",
        "every lease ends within a day",
        long_leases(probe, view).await,
    );
    add(
        "I3/losses",
        "items that lost too many workers are dead",
        losses(probe, view).await,
    );
    if let Some(max_attempts) = max_attempts {
        add(
            "I4/attempts",
            "no item exceeds its maximum attempts",
            attempts(probe, view, max_attempts).await,
        );
    }
    add(
        "I4/journal",
        "attempt counts match the attempt log",
        attempt_log(probe, view).await,
    );
}

/// An item that counts as finished but never ended is lost: no claim sees it.
async fn state(probe: &Probe<'_>, view: &TableView<'_>) -> CheckResult {
    let terminal = view.terminal();
    let condition = format!("(w.finished is null) = (w.state in ({terminal}))");
    let old_and_new = view.find(probe, &view.ends(), &condition).await?;
    let unfinished = view.find(probe, &view.head(), &condition).await?;
    let matches = if old_and_new.count >= unfinished.count {
        old_and_new
    } else {
        unfinished
    };
    Ok(view.issues(
        &matches,
        Severity::Critical,
        |items| format!("{items} have a state that contradicts their finish time: they are never claimed, or may run again"),
        "find out what wrote to the table without the library; correct state and finish time of each item, and restore the table's CHECK constraint",
    ))
}

async fn due(probe: &Probe<'_>, view: &TableView<'_>) -> CheckResult {
    let columns = &view.table.columns;
    let sql = format!(
        "select t.{} from {} t where t.{} is null and t.{} is null limit {}",
        columns.id,
        view.name(),
        columns.finished,
        columns.due,
        view.limits.sample,
    );
    let rows: Vec<(i64,)> = probe.query(sql).await?;
    if rows.is_empty() {
        return Ok(Vec::new());
    }
    let what = format!(
        "at least {} unfinished items have no due time and are never claimed",
        rows.len()
    );
    let advice = "set their due time (now() makes them run) and make the column NOT NULL";
    Ok(vec![
        Issue::critical(what, advice).items(rows.iter().map(|(id,)| id), view.limits.sample),
    ])
}

/// A key has no first item for a moment after each settle, hence the second check.
async fn stranded_keys(probe: &Probe<'_>, view: &TableView<'_>) -> CheckResult {
    let Some(ordering) = view.table.ordering else {
        return Ok(Vec::new());
    };
    let columns = &view.table.columns;
    let (waiting, first) = match columns.parked {
        Some(parked) => (
            "w.parked = 'behind'".to_owned(),
            format!("h.{parked} is distinct from 'behind'"),
        ),
        None => ("true".to_owned(), format!("h.{} < 'infinity'", columns.due)),
    };
    let sql = format!(
        "select k.key from (select distinct w.key from {window} where w.key is not null and {waiting}) k
where not exists (
    select from {table} h where h.{column} = k.key and h.{finished} is null and {first})
order by 1",
        window = view.parked(),
        table = view.name(),
        column = ordering.column,
        finished = columns.finished,
    );
    let before: Vec<(String,)> = probe.query(sql.clone()).await?;
    if before.is_empty() {
        return Ok(Vec::new());
    }
    tokio::time::sleep(view.limits.recheck_after).await;
    let mut still: Vec<(String,)> = probe.query(sql).await?;
    still.retain(|key| before.contains(key));
    if still.is_empty() {
        return Ok(Vec::new());
    }
    let what = format!(
        "at least {} ordering keys have waiting items but no first item: they wait forever",
        still.len()
    );
    let advice = "run a worker on this table, which promotes stranded keys automatically; if one is running, look for an open transaction that holds the keys' locks";
    Ok(vec![Issue::critical(what, advice).items(
        still.into_iter().map(|(key,)| key),
        view.limits.sample,
    )])
}

/// Parked by an operator, and not recently by the audit log.
async fn parked(probe: &Probe<'_>, view: &TableView<'_>, parked_reasons: &[&str]) -> CheckResult {
    let recently = format!(
        "select unnest(a.items) from postrider.audit a
where a.at > now() - {} and a.work_table = '{}' and a.action = 'park'",
        interval(view.limits.parked),
        view.name()
    );
    let ordered = if view.table.columns.parked.is_none() && view.table.ordering.is_some() {
        "and w.key is null"
    } else {
        ""
    };
    let known: String = parked_reasons
        .iter()
        .map(|word| format!(", '{}'", word.replace('\'', "''")))
        .collect();
    let condition = format!(
        "w.until is null and coalesce(w.parked, '') not in ('behind'{known}) and w.id <> all (array({recently})) {ordered}"
    );
    let matches = view.find(probe, &view.parked(), &condition).await?;
    let long = age(view.limits.parked.as_secs_f64());
    Ok(view.issues(
        &matches,
        Severity::Warning,
        |items| format!("{items} have been parked for more than {long}: no worker claims them"),
        "unpark or cancel each of them",
    ))
}

/// No live worker at all, or none for this kind.
async fn unhandled(probe: &Probe<'_>, view: &TableView<'_>) -> CheckResult {
    let live = live_workers(view);
    let sql = format!(
        "with live as materialized ({live})
select w.kind, count(*), max(extract(epoch from now() - w.due))::float8, (select count(*) from live)
from {head}
where w.until is null and w.due < now() - {timeout}
  and not exists (select from live where live.kinds is null or w.kind = any (live.kinds))
group by 1 order by 2 desc limit {sample}",
        head = view.head(),
        timeout = interval(view.limits.unhandled),
        sample = view.limits.sample,
    );
    let rows: Vec<(String, i64, f64, i64)> = probe.query(sql).await?;
    let Some((_, _, _, workers)) = rows.first() else {
        return Ok(Vec::new());
    };
    let count: i64 = rows.iter().map(|row| row.1).sum();
    let oldest = rows.iter().map(|row| row.2).fold(0.0, f64::max);
    let oldest = age(oldest);
    let issue = if *workers == 0 {
        Issue::warning(
            format!(
                "at least {count} items are due, the oldest for {oldest}, and no worker is alive"
            ),
            "start a worker for this table (`postrider serve` with the worker role), or find out why it stopped",
        )
    } else {
        Issue::warning(
            format!(
                "at least {count} items are due, the oldest for {oldest}, of kinds that none of the {workers} live workers handle"
            ),
            "start a worker with a handler for these kinds, or cancel the items; the kinds are listed below",
        )
    };
    let kinds = rows.into_iter().map(|row| row.0).filter(|k| !k.is_empty());
    Ok(vec![issue.items(kinds, view.limits.sample)])
}

/// Kept, and retried, until a group subscribes.
async fn unroutable(probe: &Probe<'_>, view: &TableView<'_>) -> CheckResult {
    let sql = format!(
        "select w.kind, count(*) from {} where w.code = '{}' group by 1 order by 2 desc limit {}",
        view.head(),
        postrider::publisher::UNROUTABLE,
        view.limits.sample,
    );
    let rows: Vec<(String, i64)> = probe.query(sql).await?;
    if rows.is_empty() {
        return Ok(Vec::new());
    }
    let count: i64 = rows.iter().map(|row| row.1).sum();
    let what = format!("at least {count} messages wait because their topics have no subscription");
    let advice =
        "start the consumer that should receive them, or cancel them; the topics are listed below";
    Ok(vec![
        Issue::warning(what, advice).items(
            rows.into_iter()
                .map(|(topic, count)| format!("{topic}: {count}")),
            view.limits.sample,
        ),
    ])
}

async fn overdue(probe: &Probe<'_>, view: &TableView<'_>) -> CheckResult {
    let live = live_workers(view);
    let condition = format!(
        "w.until is null and w.due < now() - {} and exists (
    select from ({live}) l where l.kinds is null or w.kind = any (l.kinds))",
        interval(view.limits.overdue)
    );
    let matches = view
        .find_since(probe, &view.head(), &condition, "w.due")
        .await?;
    let oldest = age(matches.oldest);
    Ok(view.issues(
        &matches,
        Severity::Warning,
        |items| format!("{items} are overdue, the oldest for {oldest}, although a live worker handles their kind: work arrives faster than it is handled, or is blocked"),
        "check for open breakers and slow handlers; raise the concurrency or start more workers",
    ))
}

fn live_workers(view: &TableView<'_>) -> String {
    format!(
        "select o.kinds from postrider.worker o
where o.work_table = '{}' and o.seen_at + o.ttl > clock_timestamp()",
        view.name()
    )
}

/// State, lease time, fence and owner are set and cleared together.
async fn lease(probe: &Probe<'_>, view: &TableView<'_>) -> CheckResult {
    let condition = format!(
        "not ((w.state = '{}') = (w.until is not null) and (w.until is null) = (w.fence is null)
    and (w.until is null) = (w.owner is null))",
        view.table.states.leased
    );
    let unfinished = view.find(probe, &view.head(), &condition).await?;
    let old_and_new = view.find(probe, &view.ends(), &condition).await?;
    let matches = if old_and_new.count >= unfinished.count {
        old_and_new
    } else {
        unfinished
    };
    Ok(view.issues(
        &matches,
        Severity::Critical,
        |items| format!("{items} have an inconsistent lease: state, lease time, fence and owner must be set together"),
        "find out what wrote to the table without the library; set lease time, fence and owner to null and the state to ready or waiting, and restore the CHECK constraint",
    ))
}

/// The items of one claim share a fence, but never with another claimer.
async fn shared_fence(probe: &Probe<'_>, view: &TableView<'_>) -> CheckResult {
    let sql = format!(
        "select count(*), coalesce((array_agg(f.id order by f.id))[1:{}], '{{}}') from (
    select min(w.id) as id from {} where w.fence is not null
    group by w.fence having count(distinct w.owner) > 1) f",
        view.limits.sample,
        view.head(),
    );
    let (count, ids): (i64, Vec<i64>) = probe.query_one(sql).await?;
    if count == 0 {
        return Ok(Vec::new());
    }
    let what = format!(
        "at least {count} fences belong to two owners: each could settle the other's items"
    );
    let advice = "stop workers that don't use this library: every claim must write a random fence of its own; the leases expire by themselves";
    Ok(vec![
        Issue::critical(what, advice).items(ids, view.limits.sample),
    ])
}

async fn expired(probe: &Probe<'_>, view: &TableView<'_>) -> CheckResult {
    let condition = format!(
        "w.finished is null and w.until < now() - {}",
        interval(view.limits.rescue)
    );
    let matches = view
        .find_since(probe, &view.head(), &condition, "w.until")
        .await?;
    // Rescued items run one at a time, so a crash with many leases takes a while, but not an hour.
    let severity = if matches.oldest > view.limits.rescue.as_secs_f64() * 30.0 {
        Severity::Critical
    } else {
        Severity::Warning
    };
    let oldest = age(matches.oldest);
    Ok(view.issues(
        &matches,
        severity,
        |items| format!("{items} have an expired lease, the oldest since {oldest}, and were not rescued"),
        "check that a worker of this table is alive and handles their kinds; every worker rescues expired leases",
    ))
}

async fn long_leases(probe: &Probe<'_>, view: &TableView<'_>) -> CheckResult {
    let matches = view
        .find(
            probe,
            &view.head(),
            "w.until > now() + interval '1 day 1 hour'",
        )
        .await?;
    Ok(view.issues(
        &matches,
        Severity::Warning,
        |items| format!("{items} have a lease that lasts for more than another day: if their worker dies, they wait that long"),
        "shorten the worker's lease; to free an item immediately, set its lease time to now()",
    ))
}

async fn losses(probe: &Probe<'_>, view: &TableView<'_>) -> CheckResult {
    let condition = format!(
        "w.losses >= {} and (w.until is null or w.until < now() - {})",
        view.table.max_losses,
        interval(view.limits.rescue)
    );
    let matches = view.find(probe, &view.head(), &condition).await?;
    let max = view.table.max_losses;
    Ok(view.issues(
        &matches,
        Severity::Warning,
        |items| format!("{items} lost {max} workers or more and should be dead (WORKER_LOST), but are not marked dead"),
        "check that a worker of this table is alive; if it keeps dying, cancel these items first",
    ))
}

async fn attempts(probe: &Probe<'_>, view: &TableView<'_>, max: u32) -> CheckResult {
    let condition = format!("w.attempts > {max}");
    let finished = view.find(probe, &view.ends(), &condition).await?;
    let unfinished = view.find(probe, &view.head(), &condition).await?;
    let matches = if finished.count >= unfinished.count {
        finished
    } else {
        unfinished
    };
    Ok(view.issues(
        &matches,
        Severity::Critical,
        |items| format!("{items} have had more than {max} attempts"),
        "if the maximum was lowered recently, these are from before; otherwise find out what settles items without the library, and see each item's attempts",
    ))
}

/// Old entries of the attempt log are deleted, so an item without entries is fine.
async fn attempt_log(probe: &Probe<'_>, view: &TableView<'_>) -> CheckResult {
    let condition = format!(
        "w.attempts > 0 and w.attempts > (
    select max(a.attempt) from postrider.attempt a where a.work_table = '{}' and a.item_id = w.id)",
        view.name()
    );
    let matches = view.find(probe, &view.head(), &condition).await?;
    Ok(view.issues(
        &matches,
        Severity::Warning,
        |items| format!("{items} count more attempts than the attempt log contains"),
        "find out what changed the count without the library; the attempt log is authoritative",
    ))
}
