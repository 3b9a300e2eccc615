//! Keeps the planner's statistics in step with fast-growing tables.
//!
//! PostgreSQL keeps the plan of a prepared statement until the table is analyzed, and autovacuum looks about once a
//! minute. A plan made for a handful of rows reads the whole table on every call, and a large job makes that minute
//! expensive.

use postrider::Result;
use sqlx::PgPool;

/// Tables of our schemas that are at least four times as large as their statistics say. Any plan reads a table with few
/// pages or rows quickly. Only the owner may analyze.
const OUTGROWN: &str = "
select format('%I.%I', n.nspname, c.relname)
from pg_class c join pg_namespace n on n.oid = c.relnamespace
where c.relkind = 'r' and n.nspname in (select schema from postrider.schema_migration)
  and pg_has_role(c.relowner, 'usage')
  and (pg_relation_size(c.oid) / current_setting('block_size')::bigint > 4 * greatest(c.relpages, 10)
       or pg_stat_get_live_tuples(c.oid) > 4 * greatest(c.reltuples, 500))
order by 1";

/// Analyzes the tables that have outgrown their statistics and returns their names. The server then plans all
/// statements on them again. Cheap if there are none: call it every few seconds.
pub async fn refresh(pool: &PgPool) -> Result<Vec<String>> {
    let tables: Vec<String> = sqlx::query_scalar(OUTGROWN).fetch_all(pool).await?;
    for table in &tables {
        // A held lock means that another process is analyzing it.
        let analyze = sqlx::AssertSqlSafe(format!("analyze (skip_locked) {table}"));
        sqlx::query(analyze).execute(pool).await?;
    }
    Ok(tables)
}
