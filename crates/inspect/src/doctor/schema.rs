//! The schema: its version, and the indexes that claims stand on.

use super::Report;
use super::exam::{Answer, Complaint, Exam, Unanswered};
use super::table_view::{Words, claims};
use postrider::migrate::{MigrateError, Migrator};

/// The columns that a claim changes must be in no index, or no claim stays on its page.
const COSTLY: &str = "
select distinct i.indexrelid::regclass::text from pg_index i
join pg_depend d on d.classid = 'pg_class'::regclass and d.objid = i.indexrelid
    and d.refclassid = 'pg_class'::regclass and d.refobjid = i.indrelid
join pg_attribute a on a.attrelid = i.indrelid and a.attnum = d.refobjsubid";

pub(super) async fn version(exam: &Exam<'_>, migrator: &Migrator, report: &mut Report) {
    report.take(
        "schema/version",
        None,
        "the schema is the one that this program knows",
        plan(exam, migrator).await,
    );
}

pub(super) async fn examine(exam: &Exam<'_>, words: &Words<'_>, report: &mut Report) {
    let table = Some(words.name());
    report.take(
        "schema/claim-index",
        table,
        "the claim index is there and valid",
        claim_index(exam, words).await,
    );
    report.take(
        "schema/invalid-indexes",
        table,
        "every index is valid",
        invalid(exam, words).await,
    );
    report.take(
        "schema/claim-cost",
        table,
        "no index makes claims expensive",
        costly(exam, words).await,
    );
}

async fn plan(exam: &Exam<'_>, migrator: &Migrator) -> Answer {
    let patience = exam.limits.patience;
    let planning = async {
        let mut connection = exam.pool.acquire().await?;
        migrator.plan(&mut connection).await
    };
    let planned = tokio::time::timeout(patience, planning)
        .await
        .map_err(|_| Unanswered::TooLong(patience))?;
    match planned {
        Ok(plan) if plan.pending.is_empty() => Ok(Vec::new()),
        Ok(plan) => {
            let what = format!("{} migrations have not run here yet", plan.pending.len());
            let advice =
                "run `postrider migrate`; until then the program of this version does not start";
            let names = plan
                .pending
                .iter()
                .map(|pending| format!("{}/{}", pending.schema, pending.name));
            Ok(vec![
                Complaint::warning(what, advice).items(names, exam.limits.sample),
            ])
        }
        Err(MigrateError::Database(error)) => Err(error.into()),
        // The sentence says what to do.
        Err(error) => Ok(vec![Complaint::critical(
            error.to_string(),
            "use the program that fits the schema, or restore the schema from a backup",
        )]),
    }
}

async fn claim_index(exam: &Exam<'_>, words: &Words<'_>) -> Answer {
    let columns = &words.table.columns;
    let either = [None, words.table.kind].map(|kind| claims(words.table, kind));
    let sql = format!(
        "select i.indexrelid::regclass::text, i.indisvalid and i.indisready and i.indislive from pg_index i
where i.indrelid = '{}'::regclass and (({}) or ({})) order by 2 desc",
        words.name(),
        either[0],
        either[1],
    );
    let rows: Vec<(String, bool)> = exam.ask(sql).await?;
    Ok(match rows.first() {
        Some((_, true)) => Vec::new(),
        Some((name, false)) => vec![Complaint::critical(
            format!("the claim index {name} is not valid: each claim reads the whole table"),
            format!("rebuild it: `reindex index concurrently {name}`"),
        )],
        None => vec![Complaint::critical(
            "the claim index is missing: each claim reads the whole table".to_owned(),
            format!(
                "make it: `create index concurrently on {} ({}, {}) where {} is null`",
                words.name(),
                columns.due,
                columns.id,
                columns.finished
            ),
        )],
    })
}

async fn invalid(exam: &Exam<'_>, words: &Words<'_>) -> Answer {
    let sql = format!(
        "select i.indexrelid::regclass::text from pg_index i
where i.indrelid = '{}'::regclass and not (i.indisvalid and i.indisready and i.indislive)
order by 1 limit 100",
        words.name()
    );
    let rows: Vec<(String,)> = exam.ask(sql).await?;
    if rows.is_empty() {
        return Ok(Vec::new());
    }
    let what = format!(
        "{} indexes are not valid: they cost writes and serve no read",
        rows.len()
    );
    let advice = "drop them, or rebuild them with `reindex index concurrently`";
    Ok(vec![Complaint::warning(what, advice).items(
        rows.into_iter().map(|(name,)| name),
        exam.limits.sample,
    )])
}

async fn costly(exam: &Exam<'_>, words: &Words<'_>) -> Answer {
    let columns = &words.table.columns;
    let sql = format!(
        "{COSTLY}
where i.indrelid = '{}'::regclass and a.attname in ('{}', '{}', '{}', '{}') order by 1 limit 100",
        words.name(),
        columns.state,
        columns.lease_until,
        columns.fence,
        columns.owner
    );
    let rows: Vec<(String,)> = exam.ask(sql).await?;
    if rows.is_empty() {
        return Ok(Vec::new());
    }
    let what = format!(
        "{} indexes cover a column that every claim changes (state, lease, fence, owner): each claim must write them anew",
        rows.len()
    );
    let advice = "drop them; for people's queries an index over finished rows is enough";
    Ok(vec![Complaint::warning(what, advice).items(
        rows.into_iter().map(|(name,)| name),
        exam.limits.sample,
    )])
}
