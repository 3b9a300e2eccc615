//! The schema's version, and the indexes that claims need.

use super::Report;
use super::probe::{CheckError, CheckResult, Issue, Probe};
use super::table_view::{TableView, claims};
use postrider::migrate::{MigrateError, Migrator};

/// Indexes that use a column that a claim changes: they prevent heap-only updates.
const CLAIM_COST: &str = "
select distinct i.indexrelid::regclass::text from pg_index i
join pg_depend d on d.classid = 'pg_class'::regclass and d.objid = i.indexrelid
    and d.refclassid = 'pg_class'::regclass and d.refobjid = i.indrelid
join pg_attribute a on a.attrelid = i.indrelid and a.attnum = d.refobjsubid";

pub(super) async fn version(probe: &Probe<'_>, migrator: &Migrator, report: &mut Report) {
    report.add(
        "schema/version",
        None,
        "the schema matches this program",
        plan(probe, migrator).await,
    );
}

pub(super) async fn examine(probe: &Probe<'_>, view: &TableView<'_>, report: &mut Report) {
    let table = Some(view.name());
    report.add(
        "schema/claim-index",
        table,
        "the claim index exists and is valid",
        claim_index(probe, view).await,
    );
    report.add(
        "schema/invalid-indexes",
        table,
        "every index is valid",
        invalid(probe, view).await,
    );
    report.add(
        "schema/claim-cost",
        table,
        "no index makes claims expensive",
        claim_cost(probe, view).await,
    );
}

async fn plan(probe: &Probe<'_>, migrator: &Migrator) -> CheckResult {
    let timeout = probe.limits.timeout;
    let planning = async {
        let mut connection = probe.pool.acquire().await?;
        migrator.plan(&mut connection).await
    };
    let planned = tokio::time::timeout(timeout, planning)
        .await
        .map_err(|_| CheckError::Timeout(timeout))?;
    match planned {
        Ok(plan) if plan.pending.is_empty() => Ok(Vec::new()),
        Ok(plan) => {
            let what = format!("{} migrations are pending", plan.pending.len());
            let advice =
                "run `postrider migrate`; until then this version of the program does not start";
            let names = plan
                .pending
                .iter()
                .map(|pending| format!("{}/{}", pending.schema, pending.name));
            Ok(vec![
                Issue::warning(what, advice).items(names, probe.limits.sample),
            ])
        }
        Err(MigrateError::Database(error)) => Err(error.into()),
        // The error says what to do.
        Err(error) => Ok(vec![Issue::critical(
            error.to_string(),
            "use the program that matches the schema, or restore the schema from a backup",
        )]),
    }
}

async fn claim_index(probe: &Probe<'_>, view: &TableView<'_>) -> CheckResult {
    let columns = &view.table.columns;
    let definitions = [None, view.table.kind].map(|kind| claims(view.table, kind));
    let sql = format!(
        "select i.indexrelid::regclass::text, i.indisvalid and i.indisready and i.indislive from pg_index i
where i.indrelid = '{}'::regclass and (({}) or ({})) order by 2 desc",
        view.name(),
        definitions[0],
        definitions[1],
    );
    let rows: Vec<(String, bool)> = probe.query(sql).await?;
    Ok(match rows.first() {
        Some((_, true)) => Vec::new(),
        Some((name, false)) => vec![Issue::critical(
            format!("the claim index {name} is not valid: each claim reads the whole table"),
            format!("rebuild it: `reindex index concurrently {name}`"),
        )],
        None => vec![Issue::critical(
            "the claim index is missing: each claim reads the whole table".to_owned(),
            format!(
                "create it: `create index concurrently on {} ({}, {}) where {} is null`",
                view.name(),
                columns.due,
                columns.id,
                columns.finished
            ),
        )],
    })
}

async fn invalid(probe: &Probe<'_>, view: &TableView<'_>) -> CheckResult {
    let sql = format!(
        "select i.indexrelid::regclass::text from pg_index i
where i.indrelid = '{}'::regclass and not (i.indisvalid and i.indisready and i.indislive)
order by 1 limit 100",
        view.name()
    );
    let rows: Vec<(String,)> = probe.query(sql).await?;
    if rows.is_empty() {
        return Ok(Vec::new());
    }
    let what = format!(
        "{} indexes are not valid: they slow down writes and serve no reads",
        rows.len()
    );
    let advice = "drop them, or rebuild them with `reindex index concurrently`";
    Ok(vec![Issue::warning(what, advice).items(
        rows.into_iter().map(|(name,)| name),
        probe.limits.sample,
    )])
}

async fn claim_cost(probe: &Probe<'_>, view: &TableView<'_>) -> CheckResult {
    let columns = &view.table.columns;
    let sql = format!(
        "{CLAIM_COST}
where i.indrelid = '{}'::regclass and a.attname in ('{}', '{}', '{}', '{}') order by 1 limit 100",
        view.name(),
        columns.state,
        columns.lease_until,
        columns.fence,
        columns.owner
    );
    let rows: Vec<(String,)> = probe.query(sql).await?;
    if rows.is_empty() {
        return Ok(Vec::new());
    }
    let what = format!(
        "{} indexes cover a column that every claim changes (state, lease, fence, owner): each claim has to update them",
        rows.len()
    );
    let advice = "drop them; for ad-hoc queries an index over finished rows is enough";
    Ok(vec![Issue::warning(what, advice).items(
        rows.into_iter().map(|(name,)| name),
        probe.limits.sample,
    )])
}
