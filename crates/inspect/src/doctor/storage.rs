//! Dead rows and bloat of the work tables and the library's own tables.

use super::Report;
use super::probe::{CheckResult, Issue, Probe, age, size};

pub(super) async fn examine(probe: &Probe<'_>, tables: &[&str], report: &mut Report) {
    report.add(
        "vacuum/dead-rows",
        None,
        "vacuum keeps up",
        dead_rows(probe, tables).await,
    );
    report.add(
        "vacuum/bloat",
        None,
        "no table is bloated",
        bloat(probe, tables).await,
    );
}

/// These tables and the whole schema `postrider`.
fn ours(tables: &[&str]) -> String {
    let named: Vec<String> = tables
        .iter()
        .map(|name| format!("'{name}'::regclass"))
        .collect();
    format!(
        "(s.schemaname = 'postrider' or s.relid = any (array[{}]::regclass[]))",
        named.join(", ")
    )
}

async fn dead_rows(probe: &Probe<'_>, tables: &[&str]) -> CheckResult {
    let sql = format!(
        "select s.relid::regclass::text, s.n_dead_tup, s.n_live_tup,
    extract(epoch from clock_timestamp() - greatest(s.last_autovacuum, s.last_vacuum))::float8
from pg_stat_user_tables s
where {} and s.n_dead_tup > greatest({}, s.n_live_tup) order by 2 desc limit 100",
        ours(tables),
        probe.limits.dead_rows
    );
    let rows: Vec<(String, i64, i64, Option<f64>)> = probe.query(sql).await?;
    if rows.is_empty() {
        return Ok(Vec::new());
    }
    let what = format!(
        "{} tables hold more dead rows than live ones: claims and lookups have to skip them",
        rows.len()
    );
    let advice = "see the findings about what holds vacuum back; if there are none, `vacuum` these tables and check that autovacuum is on";
    Ok(vec![Issue::warning(what, advice).items(
        rows.into_iter().map(|(name, dead, live, last)| {
            let last = last.map_or("never vacuumed".to_owned(), |seconds| {
                format!("vacuumed {} ago", age(seconds))
            });
            format!("{name}: {dead} dead, {live} live, {last}")
        }),
        probe.limits.sample,
    )])
}

/// Estimated from statistics, without a lock: rows times average width against the table's size.
async fn bloat(probe: &Probe<'_>, tables: &[&str]) -> CheckResult {
    let sql = format!(
        "select b.name, b.bytes, b.content from (
    select s.relid::regclass::text as name, c.relpages * current_setting('block_size')::bigint as bytes,
        (s.n_live_tup * (32 + (select coalesce(sum(p.avg_width), 200) from pg_stats p
            where p.schemaname = s.schemaname and p.tablename = s.relname))
         * 100 / coalesce((select option_value::integer from pg_options_to_table(c.reloptions)
            where option_name = 'fillfactor'), 100))::bigint as content
    from pg_stat_user_tables s join pg_class c on c.oid = s.relid where {}) b
where b.bytes > {} and b.bytes > 5 * b.content order by 2 desc limit 100",
        ours(tables),
        probe.limits.bloat
    );
    let rows: Vec<(String, i64, i64)> = probe.query(sql).await?;
    if rows.is_empty() {
        return Ok(Vec::new());
    }
    let what = format!(
        "{} tables are mostly empty, estimated from statistics",
        rows.len()
    );
    let advice = "the space is reused automatically; to return it to the system, run `vacuum full` at a quiet time (it locks the table), or use pg_repack";
    Ok(vec![Issue::info(what, advice).items(
        rows.into_iter().map(|(name, bytes, content)| {
            format!(
                "{name}: {} for about {} of content",
                size(bytes),
                size(content)
            )
        }),
        probe.limits.sample,
    )])
}
