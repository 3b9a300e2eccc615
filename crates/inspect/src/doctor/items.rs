//! The items of a work table: nothing lost (I1), one owner (I2), crashes recover (I3), bounded (I4).

use super::exam::{Answer, Complaint, Exam, age, interval};
use super::table_view::Words;
use super::{Report, Severity};

pub(super) async fn examine(
    exam: &Exam<'_>,
    words: &Words<'_>,
    max_attempts: Option<u32>,
    at_rest: &[&str],
    report: &mut Report,
) {
    let table = Some(words.name());
    let mut take = |check, well, answer| report.take(check, table, well, answer);
    take(
        "I1/state",
        "every item is either unfinished or finished",
        state(exam, words).await,
    );
    take(
        "I1/due",
        "every unfinished item has a due time",
        due(exam, words).await,
    );
    take(
        "I1/stranded-keys",
        "every ordering key has a head",
        stranded_keys(exam, words).await,
    );
    take(
        "I1/parked",
        "nothing is parked for long",
        parked(exam, words, at_rest).await,
    );
    take(
        "I1/unhandled",
        "what is due has somebody who handles it",
        unhandled(exam, words).await,
    );
    take(
        "I1/unroutable",
        "every message has somewhere to go",
        unroutable(exam, words).await,
    );
    take(
        "I1/overdue",
        "nothing is overdue for long",
        overdue(exam, words).await,
    );
    take("I2/lease", "leases are whole", lease(exam, words).await);
    take(
        "I2/shared-fence",
        "no fence has two owners",
        shared_fence(exam, words).await,
    );
    take(
        "I3/expired-leases",
        "no expired lease waits for long",
        expired(exam, words).await,
    );
    take(
        "I3/endless-leases",
        "every lease ends within a day",
        endless(exam, words).await,
    );
    take(
        "I3/losses",
        "no item that lost too many workers is still at large",
        losses(exam, words).await,
    );
    if let Some(max_attempts) = max_attempts {
        take(
            "I4/attempts",
            "no item has had more attempts than it may",
            attempts(exam, words, max_attempts).await,
        );
    }
    take(
        "I4/journal",
        "the journal explains every count of attempts",
        journal(exam, words).await,
    );
}

/// An item that counts as finished but never ended is in no claim's sight: lost.
async fn state(exam: &Exam<'_>, words: &Words<'_>) -> Answer {
    let terminal = words.terminal();
    let condition = format!("(w.finished is null) = (w.state in ({terminal}))");
    let old_and_new = words.find(exam, &words.ends(), &condition).await?;
    let unfinished = words.find(exam, &words.head(), &condition).await?;
    let seen = if old_and_new.count >= unfinished.count {
        old_and_new
    } else {
        unfinished
    };
    Ok(words.complain(
        &seen,
        Severity::Critical,
        |items| format!("{items} have a state that contradicts their time of finishing: what counts as finished is never claimed, and what counts as unfinished may be done again"),
        "find out what wrote to the table past the engine; set the state and the time of finishing of each item by hand, and restore the table's CHECK constraint",
    ))
}

async fn due(exam: &Exam<'_>, words: &Words<'_>) -> Answer {
    let columns = &words.table.columns;
    let sql = format!(
        "select t.{} from {} t where t.{} is null and t.{} is null limit {}",
        columns.id,
        words.name(),
        columns.finished,
        columns.due,
        words.limits.sample,
    );
    let rows: Vec<(i64,)> = exam.ask(sql).await?;
    if rows.is_empty() {
        return Ok(Vec::new());
    }
    let what = format!(
        "at least {} unfinished items have no due time and are never claimed",
        rows.len()
    );
    let advice = "set their due time (now() lets them run) and make the column NOT NULL";
    Ok(vec![
        Complaint::critical(what, advice).items(rows.iter().map(|(id,)| id), words.limits.sample),
    ])
}

/// A key is headless for a moment whenever its head was settled, hence the second look.
async fn stranded_keys(exam: &Exam<'_>, words: &Words<'_>) -> Answer {
    let Some(ordering) = words.table.ordering else {
        return Ok(Vec::new());
    };
    let columns = &words.table.columns;
    let (waits, goes) = match columns.parked {
        Some(parked) => (
            "w.parked = 'behind'".to_owned(),
            format!("h.{parked} is distinct from 'behind'"),
        ),
        None => ("true".to_owned(), format!("h.{} < 'infinity'", columns.due)),
    };
    let sql = format!(
        "select k.key from (select distinct w.key from {window} where w.key is not null and {waits}) k
where not exists (
    select from {table} h where h.{column} = k.key and h.{finished} is null and {goes})
order by 1",
        window = words.parked(),
        table = words.name(),
        column = ordering.column,
        finished = columns.finished,
    );
    let first: Vec<(String,)> = exam.ask(sql.clone()).await?;
    if first.is_empty() {
        return Ok(Vec::new());
    }
    tokio::time::sleep(words.limits.second_look).await;
    let mut still: Vec<(String,)> = exam.ask(sql).await?;
    still.retain(|key| first.contains(key));
    if still.is_empty() {
        return Ok(Vec::new());
    }
    let what = format!(
        "at least {} ordering keys have items that wait, but none that goes first: they wait for ever",
        still.len()
    );
    let advice = "run a worker on this table, which promotes stranded keys by itself; if one runs, look for an open transaction that holds the keys' locks";
    Ok(vec![Complaint::critical(what, advice).items(
        still.into_iter().map(|(key,)| key),
        words.limits.sample,
    )])
}

/// Parked by a person, and not in the audit of late.
async fn parked(exam: &Exam<'_>, words: &Words<'_>, at_rest: &[&str]) -> Answer {
    let lately = format!(
        "select unnest(a.items) from postrider.audit a
where a.at > now() - {} and a.work_table = '{}' and a.action = 'park'",
        interval(words.limits.parked),
        words.name()
    );
    let ordered = if words.table.columns.parked.is_none() && words.table.ordering.is_some() {
        "and w.key is null"
    } else {
        ""
    };
    let known: String = at_rest
        .iter()
        .map(|word| format!(", '{}'", word.replace('\'', "''")))
        .collect();
    let condition = format!(
        "w.until is null and coalesce(w.parked, '') not in ('behind'{known}) and w.id <> all (array({lately})) {ordered}"
    );
    let seen = words.find(exam, &words.parked(), &condition).await?;
    let long = age(words.limits.parked.as_secs_f64());
    Ok(words.complain(
        &seen,
        Severity::Warning,
        |items| format!("{items} are parked, and were not parked within the last {long}: nobody will claim them"),
        "decide about each: unpark it or cancel it",
    ))
}

/// Nobody at all, or nobody for this kind.
async fn unhandled(exam: &Exam<'_>, words: &Words<'_>) -> Answer {
    let live = live_workers(words);
    let sql = format!(
        "with live as materialized ({live})
select w.kind, count(*), max(extract(epoch from now() - w.due))::float8, (select count(*) from live)
from {head}
where w.until is null and w.due < now() - {patience}
  and not exists (select from live where live.kinds is null or w.kind = any (live.kinds))
group by 1 order by 2 desc limit {sample}",
        head = words.head(),
        patience = interval(words.limits.unhandled),
        sample = words.limits.sample,
    );
    let rows: Vec<(String, i64, f64, i64)> = exam.ask(sql).await?;
    let Some((_, _, _, workers)) = rows.first() else {
        return Ok(Vec::new());
    };
    let count: i64 = rows.iter().map(|row| row.1).sum();
    let oldest = rows.iter().map(|row| row.2).fold(0.0, f64::max);
    let oldest = age(oldest);
    let complaint = if *workers == 0 {
        Complaint::warning(
            format!(
                "at least {count} items are due, the oldest for {oldest}, and no worker is alive"
            ),
            "start a worker for this table (`postrider serve` with the role worker), or find out why it stopped",
        )
    } else {
        Complaint::warning(
            format!(
                "at least {count} items are due, the oldest for {oldest}, of kinds that none of the {workers} live workers handles"
            ),
            "start a worker that has a handler for these kinds, or cancel the items; the kinds are named below",
        )
    };
    let kinds = rows.into_iter().map(|row| row.0).filter(|k| !k.is_empty());
    Ok(vec![complaint.items(kinds, words.limits.sample)])
}

/// Kept until somebody subscribes; asked about again and again meanwhile.
async fn unroutable(exam: &Exam<'_>, words: &Words<'_>) -> Answer {
    let sql = format!(
        "select w.kind, count(*) from {} where w.code = '{}' group by 1 order by 2 desc limit {}",
        words.head(),
        postrider::publisher::UNROUTABLE,
        words.limits.sample,
    );
    let rows: Vec<(String, i64)> = exam.ask(sql).await?;
    if rows.is_empty() {
        return Ok(Vec::new());
    }
    let count: i64 = rows.iter().map(|row| row.1).sum();
    let what = format!("at least {count} messages wait because nobody subscribes to their topics");
    let advice = "migrate and start the consumer that should have them, or cancel them; the topics are named below";
    Ok(vec![
        Complaint::warning(what, advice).items(
            rows.into_iter()
                .map(|(topic, count)| format!("{topic}: {count}")),
            words.limits.sample,
        ),
    ])
}

async fn overdue(exam: &Exam<'_>, words: &Words<'_>) -> Answer {
    let live = live_workers(words);
    let condition = format!(
        "w.until is null and w.due < now() - {} and exists (
    select from ({live}) l where l.kinds is null or w.kind = any (l.kinds))",
        interval(words.limits.overdue)
    );
    let seen = words.look(exam, &words.head(), &condition, "w.due").await?;
    let oldest = age(seen.oldest);
    Ok(words.complain(
        &seen,
        Severity::Warning,
        |items| format!("{items} are overdue, the oldest for {oldest}, though a live worker handles their kind: work comes in faster than it is done, or is held up"),
        "see whether a breaker is open or handlers are slow; raise the concurrency or start more workers",
    ))
}

fn live_workers(words: &Words<'_>) -> String {
    format!(
        "select o.kinds from postrider.worker o
where o.work_table = '{}' and o.seen_at + o.ttl > clock_timestamp()",
        words.name()
    )
}

/// State, time, fence and owner come and go together.
async fn lease(exam: &Exam<'_>, words: &Words<'_>) -> Answer {
    let condition = format!(
        "not ((w.state = '{}') = (w.until is not null) and (w.until is null) = (w.fence is null)
    and (w.until is null) = (w.owner is null))",
        words.table.states.leased
    );
    let unfinished = words.find(exam, &words.head(), &condition).await?;
    let old_and_new = words.find(exam, &words.ends(), &condition).await?;
    let seen = if old_and_new.count >= unfinished.count {
        old_and_new
    } else {
        unfinished
    };
    Ok(words.complain(
        &seen,
        Severity::Critical,
        |items| format!("{items} have half a lease: state, lease time, fence and owner must all be there or none"),
        "find out what wrote to the table past the engine; set the four columns to null and the state to its ready or waiting word, and restore the CHECK constraint",
    ))
}

/// A batch shares its fence, but not with another claimer.
async fn shared_fence(exam: &Exam<'_>, words: &Words<'_>) -> Answer {
    let sql = format!(
        "select count(*), coalesce((array_agg(f.id order by f.id))[1:{}], '{{}}') from (
    select min(w.id) as id from {} where w.fence is not null
    group by w.fence having count(distinct w.owner) > 1) f",
        words.limits.sample,
        words.head(),
    );
    let (count, ids): (i64, Vec<i64>) = exam.ask_one(sql).await?;
    if count == 0 {
        return Ok(Vec::new());
    }
    let what =
        format!("at least {count} fences belong to two owners: one could settle the other's items");
    let advice = "stop the workers that are no Postrider workers: a claim must write a random fence of its own; the leases end by themselves";
    Ok(vec![
        Complaint::critical(what, advice).items(ids, words.limits.sample),
    ])
}

async fn expired(exam: &Exam<'_>, words: &Words<'_>) -> Answer {
    let condition = format!(
        "w.finished is null and w.until < now() - {}",
        interval(words.limits.rescue)
    );
    let seen = words
        .look(exam, &words.head(), &condition, "w.until")
        .await?;
    // Suspects are run one at a time, so a crash with much in hand takes a while; an hour is no while.
    let severity = if seen.oldest > words.limits.rescue.as_secs_f64() * 30.0 {
        Severity::Critical
    } else {
        Severity::Warning
    };
    let oldest = age(seen.oldest);
    Ok(words.complain(
        &seen,
        severity,
        |items| format!("{items} have a lease that ran out, the oldest {oldest} ago, and nobody has rescued them"),
        "check that a worker of this table is alive and handles their kinds; rescue is part of every worker and goes on by itself",
    ))
}

async fn endless(exam: &Exam<'_>, words: &Words<'_>) -> Answer {
    let seen = words
        .find(
            exam,
            &words.head(),
            "w.until > now() + interval '1 day 1 hour'",
        )
        .await?;
    Ok(words.complain(
        &seen,
        Severity::Warning,
        |items| format!("{items} are leased for more than a day from now: should their worker die, nobody would notice"),
        "shorten the worker's lease; to free an item at once, set its lease time to now()",
    ))
}

async fn losses(exam: &Exam<'_>, words: &Words<'_>) -> Answer {
    let condition = format!(
        "w.losses >= {} and (w.until is null or w.until < now() - {})",
        words.table.max_losses,
        interval(words.limits.rescue)
    );
    let seen = words.find(exam, &words.head(), &condition).await?;
    let most = words.table.max_losses;
    Ok(words.complain(
        &seen,
        Severity::Warning,
        |items| format!("{items} cost {most} workers or more and should be dead (WORKER_LOST), but nobody has buried them"),
        "check that a worker of this table is alive; if it dies again and again, cancel these items first",
    ))
}

async fn attempts(exam: &Exam<'_>, words: &Words<'_>, most: u32) -> Answer {
    let condition = format!("w.attempts > {most}");
    let finished = words.find(exam, &words.ends(), &condition).await?;
    let unfinished = words.find(exam, &words.head(), &condition).await?;
    let seen = if finished.count >= unfinished.count {
        finished
    } else {
        unfinished
    };
    Ok(words.complain(
        &seen,
        Severity::Critical,
        |items| format!("{items} have had more than {most} attempts"),
        "if the bound was lowered lately, these are from before; else find out what settles past the engine, and see each item's attempts",
    ))
}

/// The journal may be pruned, so an item without any entry says nothing.
async fn journal(exam: &Exam<'_>, words: &Words<'_>) -> Answer {
    let condition = format!(
        "w.attempts > 0 and w.attempts > (
    select max(a.attempt) from postrider.attempt a where a.work_table = '{}' and a.item_id = w.id)",
        words.name()
    );
    let seen = words.find(exam, &words.head(), &condition).await?;
    Ok(words.complain(
        &seen,
        Severity::Warning,
        |items| format!("{items} count more attempts than the journal explains"),
        "find out what changed the count past the engine; the journal is the truth",
    ))
}
