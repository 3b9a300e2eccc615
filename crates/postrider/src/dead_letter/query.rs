//! The SQL of the view, built from the tables' descriptors and from those parts of a filter that are given: a condition
//! that isn't there can't spoil a plan.
//!
//! Each table is read by its own index and returns at most a page; only these few rows are sorted together.

use std::cmp::Ordering;

use sqlx::{Postgres, QueryBuilder};

use super::{Cursor, Filter};
use crate::lease::WorkTable;

/// `before`: a prefix for the statement, e.g. `explain`.
pub(super) fn list(
    before: &str,
    tables: &[&'static WorkTable],
    filter: &Filter,
    after: Option<&Cursor>,
    limit: u32,
) -> Option<QueryBuilder<Postgres>> {
    let limit = i64::from(limit);
    let mut query = QueryBuilder::new(format!("{before}select * from ("));
    each(&mut query, tables, |query, table| {
        let c = &table.columns;
        query.push(format!(
            "(select '{name}'::text collate \"C\" as work_table, t.{id} as id, {kind} as kind,
       t.{attempts}::integer as attempts, t.{losses}::integer as losses, {code} as code, {category} as category,
       t.{message} as message, {cause} as cause, t.{finished} as died_at
from {name} t where ",
            name = table.name,
            id = c.id,
            kind = kind(table),
            attempts = c.attempts,
            losses = c.losses,
            code = code(table),
            category = c
                .error_category
                .map_or("null::text".to_owned(), |category| format!("t.{category}::text")),
            message = c.error_message,
            cause = cause(table),
            finished = c.finished,
        ));
        matching(query, table, filter);
        if let Some(after) = after {
            beyond(query, table, after);
        }
        query
            .push(format!(
                " order by t.{} desc, t.{} desc limit ",
                c.finished, c.id
            ))
            .push_bind(limit)
            .push(")");
    })?;
    query
        .push(") d order by d.died_at desc, d.work_table desc, d.id desc limit ")
        .push_bind(limit);
    Some(query)
}

pub(super) fn count(
    tables: &[&'static WorkTable],
    filter: &Filter,
    most: i64,
) -> Option<QueryBuilder<Postgres>> {
    let mut query = QueryBuilder::new("select least(sum(d.count), ");
    query.push_bind(most).push(")::bigint from (");
    each(&mut query, tables, |query, table| {
        query.push(format!(
            "(select count(*) as count from (select 1 from {} t where ",
            table.name
        ));
        matching(query, table, filter);
        query.push(" limit ").push_bind(most).push(") w)");
    })?;
    query.push(") d");
    Some(query)
}

pub(super) fn groups(
    tables: &[&'static WorkTable],
    filter: &Filter,
    most: i64,
) -> Option<QueryBuilder<Postgres>> {
    let mut query = QueryBuilder::new("select * from (");
    each(&mut query, tables, |query, table| {
        let c = &table.columns;
        query.push(format!(
            "(select '{name}'::text as work_table, {kind} as kind, {code} as code, {cause} as cause, count(*) as count,
       min(t.{finished}) as first, max(t.{finished}) as last, max(t.{id}) as example
from {name} t where ",
            name = table.name,
            kind = kind(table),
            code = code(table),
            cause = cause(table),
            finished = c.finished,
            id = c.id,
        ));
        matching(query, table, filter);
        query.push(" group by 2, 3, 4)");
    })?;
    query
        .push(") d order by d.count desc, d.work_table, d.kind, d.cause limit ")
        .push_bind(most);
    Some(query)
}

/// One item, whatever its state. `$1`: its id.
pub(super) fn show(table: &WorkTable) -> String {
    let c = &table.columns;
    format!(
        "select {dead}, to_jsonb(t), to_jsonb(({payload})) from {name} t where t.{id} = $1",
        dead = is_dead(table),
        payload = table.payload,
        name = table.name,
        id = c.id,
    )
}

fn each(
    query: &mut QueryBuilder<Postgres>,
    tables: &[&'static WorkTable],
    mut part: impl FnMut(&mut QueryBuilder<Postgres>, &'static WorkTable),
) -> Option<()> {
    for (place, table) in tables.iter().enumerate() {
        if place > 0 {
            query.push("\nunion all\n");
        }
        part(query, table);
    }
    (!tables.is_empty()).then_some(())
}

fn matching(query: &mut QueryBuilder<Postgres>, table: &WorkTable, filter: &Filter) {
    let c = &table.columns;
    query.push(is_dead(table));
    if let Some(wanted) = &filter.kind {
        query
            .push(format!(" and {} = ", kind(table)))
            .push_bind(wanted);
    }
    if let Some(wanted) = &filter.code {
        query
            .push(format!(" and {} = ", code(table)))
            .push_bind(wanted);
    }
    if let Some(wanted) = &filter.cause {
        query
            .push(format!(" and {} = ", cause(table)))
            .push_bind(wanted);
    }
    if let Some(wanted) = &filter.text {
        query
            .push(format!(" and strpos(lower(t.{}), lower(", c.error_message))
            .push_bind(wanted)
            .push(")) > 0");
    }
    if let Some(since) = filter.since {
        query
            .push(format!(" and t.{} >= ", c.finished))
            .push_bind(since);
    }
    if let Some(until) = filter.until {
        query
            .push(format!(" and t.{} < ", c.finished))
            .push_bind(until);
    }
    if let Some(ids) = &filter.ids {
        query
            .push(format!(" and t.{} = any(", c.id))
            .push_bind(ids)
            .push(")");
    }
}

/// What comes after the cursor in the order of the whole listing, as a condition on one table.
fn beyond(query: &mut QueryBuilder<Postgres>, table: &WorkTable, after: &Cursor) {
    let c = &table.columns;
    match table.name.cmp(after.work_table.as_str()) {
        Ordering::Less => {
            query
                .push(format!(" and t.{} <= ", c.finished))
                .push_bind(after.died_at);
        }
        Ordering::Greater => {
            query
                .push(format!(" and t.{} < ", c.finished))
                .push_bind(after.died_at);
        }
        Ordering::Equal => {
            query
                .push(format!(" and (t.{}, t.{}) < (", c.finished, c.id))
                .push_bind(after.died_at)
                .push(", ")
                .push_bind(after.id)
                .push(")");
        }
    }
}

/// Dead items, by the smallest index that covers them.
pub fn is_dead(table: &WorkTable) -> String {
    let c = &table.columns;
    let known = c
        .cause
        .map_or_else(String::new, |cause| format!("t.{cause} is not null and "));
    format!(
        "{known}t.{} is not null and t.{} = '{}'::{}",
        c.finished, c.state, table.states.dead, table.state_type
    )
}

fn kind(table: &WorkTable) -> String {
    table
        .kind
        .map_or("''::text".to_owned(), |kind| format!("t.{kind}::text"))
}

fn code(table: &WorkTable) -> String {
    format!("coalesce(t.{}, 'UNKNOWN')", table.columns.error_code)
}

fn cause(table: &WorkTable) -> String {
    table
        .columns
        .cause
        .map_or_else(|| code(table), |cause| format!("t.{cause}"))
}
