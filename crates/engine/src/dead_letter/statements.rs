//! The SQL of the view, made once from the tables' descriptors.

use std::collections::HashMap;
use std::sync::Arc;

use crate::lease::WorkTable;

/// `$1`–`$6`: the filter.
const MATCHES: &str = "
where ($1::text is null or d.work_table = $1) and ($2::text is null or d.kind = $2)
  and ($3::text is null or d.code = $3)
  and ($4::timestamptz is null or d.died_at >= $4) and ($5::timestamptz is null or d.died_at < $5)
  and ($6::bigint[] is null or d.id = any($6))";

#[derive(Debug)]
pub(super) struct Statements {
    /// `$7`–`$9`: the cursor; `$10`: how many.
    pub list: Arc<str>,
    /// Equal texts together; `$7`: how many groups.
    pub groups: Arc<str>,
    shows: HashMap<&'static str, Arc<str>>,
}

impl Statements {
    pub fn over(tables: &[&'static WorkTable]) -> Self {
        let view = tables
            .iter()
            .map(|table| part(table))
            .collect::<Vec<_>>()
            .join("\nunion all\n");
        let list = format!(
            "select * from ({view}) d {MATCHES}
  and ($7::timestamptz is null or (d.died_at, d.work_table, d.id) < ($7, $8::text, $9::bigint))
order by d.died_at desc, d.work_table desc, d.id desc limit $10"
        );
        let groups = format!(
            "select d.work_table, d.kind, d.code, d.message, count(*), min(d.died_at), max(d.died_at), max(d.id)
from ({view}) d {MATCHES}
group by d.work_table, d.kind, d.code, d.message order by count(*) desc limit $7"
        );
        let shows = tables
            .iter()
            .map(|table| (table.name, show(table)))
            .collect();
        Self {
            list: list.into(),
            groups: groups.into(),
            shows,
        }
    }

    pub fn show(&self, work_table: &str) -> Option<Arc<str>> {
        self.shows.get(work_table).cloned()
    }
}

fn part(table: &WorkTable) -> String {
    let c = &table.columns;
    format!(
        "select '{name}'::text as work_table, t.{id} as id, {kind} as kind, t.{attempts}::integer as attempts,
       t.{losses}::integer as losses, coalesce(t.{code}, 'UNKNOWN') as code, {category} as category,
       t.{message} as message, t.{finished} as died_at
from {name} t where t.{finished} is not null and t.{state} = '{dead}'::{state_type}",
        name = table.name,
        id = c.id,
        kind = table.kind.map_or("''::text".to_owned(), |kind| format!("t.{kind}::text")),
        attempts = c.attempts,
        losses = c.losses,
        code = c.error_code,
        category = c.error_category.map_or("null::text".to_owned(), |category| format!("t.{category}::text")),
        message = c.error_message,
        finished = c.finished,
        state = c.state,
        dead = table.states.dead,
        state_type = table.state_type,
    )
}

fn show(table: &WorkTable) -> Arc<str> {
    let c = &table.columns;
    format!(
        "select to_jsonb(t) from {} t where t.{} = $1 and t.{} = '{}'::{}",
        table.name, c.id, c.state, table.states.dead, table.state_type
    )
    .into()
}
