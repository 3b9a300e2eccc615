//! One effect (I5), one clock (I6), terminal is terminal (I7): what the engine's own records tell.

use super::exam::{Answer, Complaint, Exam, age, interval};
use super::table_view::Words;
use super::{Report, Severity};

/// About so many pages of the ledger are read; of a larger one, a sample.
const LEDGER_PAGES: f64 = 8_000.0;

const LEDGER_SIZE: &str = "
select (pg_relation_size('postrider.ledger') / current_setting('block_size')::bigint)::float8";

/// Seconds since the oldest id that the inbox remembers; by the index on its time.
const INBOX_OLDEST: &str = "
select extract(epoch from clock_timestamp() - min(received_at))::float8 from postrider.inbox";

/// Signs of life from the future: the clock was put back after they were written.
const FUTURE: &str = "
select s.who, s.ahead from (
    select 'leader ' || name, extract(epoch from heartbeat - clock_timestamp())::float8 from postrider.leader
    union all
    select 'worker ' || name, extract(epoch from seen_at - clock_timestamp())::float8 from postrider.worker
) s (who, ahead) where s.ahead > 5 order by s.ahead desc limit 10";

pub(super) async fn examine(exam: &Exam<'_>, report: &mut Report) {
    report.take(
        "I5/ledger",
        None,
        "no accepted request waits for its outcome for long",
        ledger(exam).await,
    );
    report.take(
        "I5/inbox-pruning",
        None,
        "the inbox forgets in time",
        inbox_pruning(exam).await,
    );
    report.take(
        "I6/clock-went-back",
        None,
        "no sign of life is from the future",
        future(exam).await,
    );
}

pub(super) async fn of_table(exam: &Exam<'_>, words: &Words<'_>, report: &mut Report) {
    let table = Some(words.name());
    report.take(
        "I5/inbox-retention",
        table,
        "nothing waits for longer than the inbox remembers",
        inbox_retention(exam, words).await,
    );
    report.take(
        "I7/risen",
        table,
        "nothing left a terminal state without an entry in the audit",
        risen(exam, words).await,
    );
    report.take(
        "I7/vanished",
        table,
        "every dead letter of the last day is still there or accounted for",
        vanished(exam, words).await,
    );
    report.take(
        "dead-letters",
        table,
        "no dead letters",
        dead_letters(exam, words).await,
    );
}

async fn ledger(exam: &Exam<'_>) -> Answer {
    let (pages,): (f64,) = exam.ask_one(LEDGER_SIZE.to_owned()).await?;
    let percent = (LEDGER_PAGES / pages.max(1.0) * 100.0).min(100.0);
    let sql = format!(
        "select l.scope, count(*), max(extract(epoch from clock_timestamp() - l.created_at))::float8
from postrider.ledger l tablesample system ({percent})
where l.state = 'accepted' and l.created_at < clock_timestamp() - {}
group by 1 order by 2 desc limit {}",
        interval(exam.limits.ledger_open),
        exam.limits.sample,
    );
    let rows: Vec<(String, i64, f64)> = exam.ask(sql).await?;
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
        "at least {count} requests were accepted and have no outcome, the oldest for {oldest}{sample}"
    );
    let advice = "see what became of the work behind them (dead letters, parked items): whoever settles it must also finish the ledger's entry; the scopes are named below";
    Ok(vec![
        Complaint::warning(what, advice).items(
            rows.into_iter()
                .map(|(scope, count, _)| format!("{scope}: {count}")),
            exam.limits.sample,
        ),
    ])
}

async fn inbox_pruning(exam: &Exam<'_>) -> Answer {
    let (oldest,): (Option<f64>,) = exam.ask_one(INBOX_OLDEST.to_owned()).await?;
    let retention = exam.limits.inbox_retention.as_secs_f64();
    Ok(match oldest {
        Some(oldest) if oldest > retention * 1.5 => vec![Complaint::info(
            format!(
                "the inbox remembers {}, though {} are asked for: it grows",
                age(oldest),
                age(retention)
            ),
            "check that the scheduler runs (`postrider serve` with the role scheduler); it forgets old ids",
        )],
        _ => Vec::new(),
    })
}

async fn future(exam: &Exam<'_>) -> Answer {
    let rows: Vec<(String, f64)> = exam.ask(FUTURE.to_owned()).await?;
    let Some((_, most)) = rows.first() else {
        return Ok(Vec::new());
    };
    let what = format!(
        "the database's clock was put back: it wrote signs of life up to {} in its own future",
        age(*most)
    );
    let advice = "leases and due times of that span end later by as much and then all is well; keep the server's clock by NTP, slewing and not stepping";
    Ok(vec![Complaint::warning(what, advice).items(
        rows.into_iter().map(|(who, _)| who),
        exam.limits.sample,
    )])
}

/// When it is delivered at last, a consumer may have forgotten that it had it before.
async fn inbox_retention(exam: &Exam<'_>, words: &Words<'_>) -> Answer {
    let condition = format!(
        "w.due < now() - {} and w.due > '-infinity'",
        interval(exam.limits.inbox_retention)
    );
    let seen = words.look(exam, &words.head(), &condition, "w.due").await?;
    let retention = age(exam.limits.inbox_retention.as_secs_f64());
    let oldest = age(seen.oldest);
    Ok(words.complain(
        &seen,
        Severity::Warning,
        |items| format!("{items} are due for longer than the inbox remembers ({retention}), the oldest for {oldest}: a redelivery would not be recognised"),
        "raise the inbox's retention before these are worked off, or cancel them",
    ))
}

/// The journal says that it died, it is alive, and the audit does not say who raised it.
async fn risen(exam: &Exam<'_>, words: &Words<'_>) -> Answer {
    let window = format!(
        "(select w.*, (select max(a.at) from postrider.attempt a
        where a.work_table = '{table}' and a.item_id = w.id and a.outcome = 'dead') as died
    from {head} offset 0) w",
        table = words.name(),
        head = words.head()
    );
    // A deed's time is when its transaction began, which may be a moment before the death that it saw.
    let condition = format!(
        "w.died is not null and not exists (
    select from postrider.audit u where u.at >= w.died - interval '1 minute' and u.work_table = '{}' and w.id = any (u.items))",
        words.name()
    );
    let seen = words.look(exam, &window, &condition, "w.died").await?;
    Ok(words.complain(
        &seen,
        Severity::Critical,
        |items| format!("{items} were dead and are unfinished again without an entry in the audit"),
        "somebody changed them by hand: use the engine's redrive, which writes the audit; cancel these if they should not run",
    ))
}

/// The journal says that it died, and there is neither the item nor a record of what became of it.
async fn vanished(exam: &Exam<'_>, words: &Words<'_>) -> Answer {
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
        table = words.name(),
        id = words.table.columns.id,
        window = words.limits.window,
    );
    let rows: Vec<(i64,)> = exam.ask(sql).await?;
    if rows.is_empty() {
        return Ok(Vec::new());
    }
    let what = format!(
        "at least {} dead letters of the last day are gone without an entry in archive or audit",
        rows.len()
    );
    let advice = "somebody deleted them by hand: restore them from a backup if they matter, and use the engine's archive, which keeps them";
    Ok(vec![Complaint::critical(what, advice).items(
        rows.into_iter().map(|(id,)| id),
        words.limits.sample,
    )])
}

async fn dead_letters(exam: &Exam<'_>, words: &Words<'_>) -> Answer {
    /// Enough to see which failures are common.
    const READ: usize = 1_000;
    let dead = words.dead();
    let (count, oldest): (i64, f64) = exam
        .ask_one(format!(
            "select count(*), coalesce(max(extract(epoch from clock_timestamp() - d.finished)), 0)::float8 from {dead}"
        ))
        .await?;
    if count == 0 {
        return Ok(Vec::new());
    }
    let rows: Vec<(Option<String>, Option<String>)> = exam
        .ask(format!(
            "select d.code, d.message from {dead} order by d.finished desc limit {READ}"
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
    let least = if count >= i64::from(words.limits.window) {
        "at least "
    } else {
        ""
    };
    let what = format!(
        "{least}{count} dead letters, the oldest for {}; the most common reasons of the latest are named below",
        age(oldest)
    );
    let advice =
        "put right what they died of, then redrive them, or archive what needs no more doing";
    Ok(vec![
        Complaint::warning(what, advice).items(
            groups
                .into_iter()
                .map(|(reason, count)| format!("{count} × {reason}")),
            5,
        ),
    ])
}
