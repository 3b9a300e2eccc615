//! Leaders, breakers and workers.

use super::Report;
use super::probe::{CheckResult, Issue, Probe, age, interval};

pub(super) async fn examine(probe: &Probe<'_>, report: &mut Report) {
    report.add(
        "fleet/leaders",
        None,
        "every periodic task has a live leader",
        leaders(probe).await,
    );
    report.add(
        "fleet/breakers",
        None,
        "all breakers are closed",
        breakers(probe).await,
    );
    report.add(
        "fleet/workers",
        None,
        "all workers send heartbeats",
        workers(probe).await,
    );
}

/// A leader that resigned has stopped cleanly. One whose lease expired was lost and has no successor.
async fn leaders(probe: &Probe<'_>) -> CheckResult {
    let sql = format!(
        "select l.name, extract(epoch from clock_timestamp() - l.heartbeat)::float8 from postrider.leader l
where l.until < clock_timestamp() - {} order by l.heartbeat limit 100",
        interval(probe.limits.leader)
    );
    let rows: Vec<(String, f64)> = probe.query(sql).await?;
    let Some((_, longest)) = rows.first() else {
        return Ok(Vec::new());
    };
    let what = format!(
        "{} periodic tasks lost their leader, the first {} ago, and no process took over: they are not running",
        rows.len(),
        age(*longest)
    );
    let advice =
        "start a process with the scheduler role (`postrider serve`), or find out why it stopped";
    Ok(vec![Issue::warning(what, advice).items(
        rows.into_iter().map(|(name, _)| name),
        probe.limits.sample,
    )])
}

/// A breaker whose probe is long overdue belongs to a dead process.
async fn breakers(probe: &Probe<'_>) -> CheckResult {
    const OPEN: &str = "
select b.dependency, count(*), max(extract(epoch from clock_timestamp() - b.changed_at))::float8
from postrider.breaker b
where b.state <> 'closed' and coalesce(b.open_until, b.changed_at) > clock_timestamp() - interval '10 minutes'
group by 1 order by 1 limit 100";
    let rows: Vec<(String, i64, f64)> = probe.query(OPEN.to_owned()).await?;
    if rows.is_empty() {
        return Ok(Vec::new());
    }
    let what = format!(
        "breakers for {} dependencies are open: their work waits",
        rows.len()
    );
    let advice = "check that the dependency is up and reachable from here; work resumes automatically once it responds";
    Ok(vec![Issue::warning(what, advice).items(
        rows.into_iter().map(|(dependency, processes, since)| {
            let plural = if processes == 1 { "" } else { "es" };
            format!(
                "{dependency} (in {processes} process{plural}, for {})",
                age(since)
            )
        }),
        probe.limits.sample,
    )])
}

async fn workers(probe: &Probe<'_>) -> CheckResult {
    const SILENT: &str = "
select o.name || ' on ' || o.work_table, extract(epoch from clock_timestamp() - o.seen_at)::float8
from postrider.worker o where o.seen_at + o.ttl < clock_timestamp() order by o.seen_at limit 100";
    let rows: Vec<(String, f64)> = probe.query(SILENT.to_owned()).await?;
    let Some((_, longest)) = rows.first() else {
        return Ok(Vec::new());
    };
    let what = format!(
        "{} workers stopped sending heartbeats without shutting down, the first {} ago",
        rows.len(),
        age(*longest)
    );
    let advice = "unless you killed them, see their logs; other workers rescue their items";
    Ok(vec![Issue::info(what, advice).items(
        rows.into_iter().map(|(who, _)| who),
        probe.limits.sample,
    )])
}
