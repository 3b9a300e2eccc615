//! Statistics that keep up with tables that grow fast.
//!
//! PostgreSQL keeps a statement's plan until it looks at the table again, which it does about once a minute. A plan that was
//! made for a handful of rows reads the whole table each time; once a large job has arrived, a minute of that is long.

use sqlx::PgPool;

use crate::Result;

/// Tables of our schemas that are at least four times what the server believes. What has few pages or rows is read soon
/// enough by any plan. Only an owner may analyze.
const OUTGROWN: &str = "
select format('%I.%I', n.nspname, c.relname)
from pg_class c join pg_namespace n on n.oid = c.relnamespace
where c.relkind = 'r' and n.nspname in (select schema from postrider.schema_migration)
  and pg_has_role(c.relowner, 'usage')
  and (pg_relation_size(c.oid) / current_setting('block_size')::bigint > 4 * greatest(c.relpages, 10)
       or pg_stat_get_live_tuples(c.oid) > 4 * greatest(c.reltuples, 500))
order by 1";

/// Has the server look again at what has outgrown its statistics, and tells which tables those were. All plans for them
/// are then made anew. Cheap when there are none: call it every few seconds.
pub async fn refresh(pool: &PgPool) -> Result<Vec<String>> {
    let tables: Vec<String> = sqlx::query_scalar(OUTGROWN).fetch_all(pool).await?;
    for table in &tables {
        // Whoever else has the lock looks at it just now.
        let analyze = sqlx::AssertSqlSafe(format!("analyze (skip_locked) {table}"));
        sqlx::query(analyze).execute(pool).await?;
    }
    Ok(tables)
}
