//! Leaders, breakers and workers: who is at work, and who should be.

use super::Report;
use super::exam::{Answer, Complaint, Exam, age, interval};

pub(super) async fn examine(exam: &Exam<'_>, report: &mut Report) {
    report.take(
        "fleet/leaders",
        None,
        "every periodic task has a living leader, or none was asked for",
        leaders(exam).await,
    );
    report.take(
        "fleet/breakers",
        None,
        "every outside dependency is called",
        breakers(exam).await,
    );
    report.take(
        "fleet/workers",
        None,
        "no worker went silent",
        workers(exam).await,
    );
}

/// A leader that resigned stopped in order; one whose lease ran out was lost and has no successor.
async fn leaders(exam: &Exam<'_>) -> Answer {
    let sql = format!(
        "select l.name, extract(epoch from clock_timestamp() - l.heartbeat)::float8 from postrider.leader l
where l.until < clock_timestamp() - {} order by l.heartbeat limit 100",
        interval(exam.limits.leader)
    );
    let rows: Vec<(String, f64)> = exam.ask(sql).await?;
    let Some((_, silent)) = rows.first() else {
        return Ok(Vec::new());
    };
    let what = format!(
        "{} periodic tasks have lost their leader, the first {} ago, and nobody took over: retries, finalizers and pruning among them stand still",
        rows.len(),
        age(*silent)
    );
    let advice =
        "start a process with the role scheduler (`postrider serve`), or find out why it stopped";
    Ok(vec![Complaint::warning(what, advice).items(
        rows.into_iter().map(|(name, _)| name),
        exam.limits.sample,
    )])
}

/// A breaker that should have been probed long ago is a dead process's and no news.
async fn breakers(exam: &Exam<'_>) -> Answer {
    const OPEN: &str = "
select b.dependency, count(*), max(extract(epoch from clock_timestamp() - b.changed_at))::float8
from postrider.breaker b
where b.state <> 'closed' and coalesce(b.open_until, b.changed_at) > clock_timestamp() - interval '10 minutes'
group by 1 order by 1 limit 100";
    let rows: Vec<(String, i64, f64)> = exam.ask(OPEN.to_owned()).await?;
    if rows.is_empty() {
        return Ok(Vec::new());
    }
    let what = format!(
        "{} outside dependencies are not called because they failed too often: their work waits",
        rows.len()
    );
    let advice = "see whether the dependency is up and reachable from here; work goes on by itself when it answers";
    Ok(vec![Complaint::warning(what, advice).items(
        rows.into_iter().map(|(dependency, processes, since)| {
            format!(
                "{dependency} (in {processes} processes, for {})",
                age(since)
            )
        }),
        exam.limits.sample,
    )])
}

async fn workers(exam: &Exam<'_>) -> Answer {
    const SILENT: &str = "
select o.name || ' on ' || o.work_table, extract(epoch from clock_timestamp() - o.seen_at)::float8
from postrider.worker o where o.seen_at + o.ttl < clock_timestamp() order by o.seen_at limit 100";
    let rows: Vec<(String, f64)> = exam.ask(SILENT.to_owned()).await?;
    let Some((_, silent)) = rows.first() else {
        return Ok(Vec::new());
    };
    let what = format!(
        "{} workers went silent without signing off, the first {} ago",
        rows.len(),
        age(*silent)
    );
    let advice = "if they were not stopped on purpose, see their logs; what they held is rescued by the others";
    Ok(vec![Complaint::info(what, advice).items(
        rows.into_iter().map(|(who, _)| who),
        exam.limits.sample,
    )])
}
