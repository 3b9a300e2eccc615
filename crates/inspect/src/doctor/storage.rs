//! Dead rows and bloat of the work tables and of the engine's own.

use super::Report;
use super::exam::{Answer, Complaint, Exam, age, size};

pub(super) async fn examine(exam: &Exam<'_>, tables: &[&str], report: &mut Report) {
    report.take(
        "vacuum/dead-rows",
        None,
        "vacuum keeps up",
        dead_rows(exam, tables).await,
    );
    report.take(
        "vacuum/bloat",
        None,
        "no table is much larger than its content",
        bloat(exam, tables).await,
    );
}

/// These tables and all of the engine's schema.
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

async fn dead_rows(exam: &Exam<'_>, tables: &[&str]) -> Answer {
    let sql = format!(
        "select s.relid::regclass::text, s.n_dead_tup, s.n_live_tup,
    extract(epoch from clock_timestamp() - greatest(s.last_autovacuum, s.last_vacuum))::float8
from pg_stat_user_tables s
where {} and s.n_dead_tup > greatest({}, s.n_live_tup) order by 2 desc limit 100",
        ours(tables),
        exam.limits.dead_rows
    );
    let rows: Vec<(String, i64, i64, Option<f64>)> = exam.ask(sql).await?;
    if rows.is_empty() {
        return Ok(Vec::new());
    }
    let what = format!(
        "{} tables hold more dead rows than live ones: claims and lookups walk over them",
        rows.len()
    );
    let advice = "see the findings about what holds vacuum back; if there are none, `vacuum` these tables and check that autovacuum is on";
    Ok(vec![Complaint::warning(what, advice).items(
        rows.into_iter().map(|(name, dead, live, last)| {
            let last = last.map_or("never vacuumed".to_owned(), |seconds| {
                format!("vacuumed {} ago", age(seconds))
            });
            format!("{name}: {dead} dead, {live} live, {last}")
        }),
        exam.limits.sample,
    )])
}

/// By the statistics, which need no lock: rows times their usual width, against the table's size. A hint, no more.
async fn bloat(exam: &Exam<'_>, tables: &[&str]) -> Answer {
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
        exam.limits.bloat
    );
    let rows: Vec<(String, i64, i64)> = exam.ask(sql).await?;
    if rows.is_empty() {
        return Ok(Vec::new());
    }
    let what = format!(
        "{} tables seem to be mostly air, by the statistics",
        rows.len()
    );
    let advice = "the space is used again by itself; to give it back, `vacuum full` the table in a quiet hour (it locks), or use pg_repack";
    Ok(vec![Complaint::info(what, advice).items(
        rows.into_iter().map(|(name, bytes, content)| {
            format!(
                "{name}: {} for about {} of content",
                size(bytes),
                size(content)
            )
        }),
        exam.limits.sample,
    )])
}
