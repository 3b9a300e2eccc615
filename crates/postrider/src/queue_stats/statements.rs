//! The SQL of the survey, made from the tables' descriptors.

use super::{CAP, STEP_SECONDS};
use crate::dead_letter::is_dead;
use crate::lease::{Finish, WorkTable};
use crate::transport::DELIVERIES;

/// One row per table. Each count reads the claim index in its own order and stops at the cap: what is leased stands at
/// its beginning, what is parked at its end.
pub(super) fn depths(tables: &[&'static WorkTable]) -> String {
    tables
        .iter()
        .map(|table| depth(table))
        .collect::<Vec<_>>()
        .join("\nunion all\n")
}

fn depth(table: &WorkTable) -> String {
    let c = &table.columns;
    let (id, due, until, finished) = (c.id, c.due, c.lease_until, c.finished);
    let most = CAP + 1;
    let window = |columns: &str, which: &str| {
        let one = format!("t.{finished} is null and {which}");
        match by_kind(table) {
            // The claim index begins with the kind: it is read once for each, so that none is read to its end.
            Some(kind) => format!(
                "(select w.* from kinds k, lateral (
        select {columns} from {table} t where {one} and t.{kind} = k.kind
        order by t.{due}, t.{id} limit {most}) w limit {most}) w",
                table = table.name
            ),
            None => format!(
                "(select {columns} from {table} t where {one} order by t.{due}, t.{id} limit {most}) w",
                table = table.name
            ),
        }
    };
    let now = window(
        &format!("t.{due} as due, t.{until} as until"),
        &format!("t.{due} <= now()"),
    );
    let later = window(
        "1",
        &format!("t.{due} > now() and t.{due} < 'infinity'::timestamptz"),
    );
    let parked = window("1", &format!("t.{due} = 'infinity'::timestamptz"));
    format!(
        "({kinds}select '{name}'::text as work_table, n.ready, n.leased,
       (select count(*) from {later}) as later, (select count(*) from {parked}) as parked,
       (select count(*) from (select 1 from {name} t where {dead} limit {most}) w) as dead, n.oldest_seconds
from (select count(*) filter (where w.until is null) as ready, count(*) filter (where w.until is not null) as leased,
             extract(epoch from clock_timestamp() - min(w.due) filter (where w.until is null))::float8 as oldest_seconds
      from {now}) n)",
        kinds = kinds(table),
        name = table.name,
        dead = is_dead(table),
    )
}

/// The column that the claim index begins with, where it does not begin with the due time.
fn by_kind(table: &WorkTable) -> Option<&'static str> {
    (table.name == DELIVERIES.name)
        .then_some(table.kind)
        .flatten()
}

/// The kinds that have unfinished items, found by jumping along the index.
fn kinds(table: &WorkTable) -> String {
    let Some(kind) = by_kind(table) else {
        return String::new();
    };
    let (name, finished) = (table.name, table.columns.finished);
    let next = |more: &str| {
        format!(
            "select t.{kind} from {name} t where t.{finished} is null {more} order by t.{kind} limit 1"
        )
    };
    format!(
        "with recursive kinds(kind) as (
    ({}) union all select ({}) from kinds k where k.kind is not null)
",
        next(""),
        next(&format!("and t.{kind} > k.kind"))
    )
}

/// `$1`: since when. What is deleted when it is done has its line in the record of completions; what is kept is counted
/// where it stands. The journal tells the rest.
pub(super) fn tallies(tables: &[&'static WorkTable]) -> String {
    let begins = |at: &str| {
        format!("(floor(extract(epoch from {at}) / {STEP_SECONDS}) * {STEP_SECONDS})::bigint")
    };
    let mut parts = vec![
        format!(
            "select c.work_table, {} as begins, 'done' as what, sum(cardinality(c.ids))::bigint as count
from postrider.completion c where c.at >= $1 group by 1, 2",
            begins("c.at")
        ),
        format!(
            "select a.work_table, {}, case a.outcome when 'done' then 'done_after_retry' else a.outcome end, count(*)
from postrider.attempt a where a.at >= $1 and a.outcome <> 'snooze' group by 1, 2, 3",
            begins("a.at")
        ),
    ];
    for table in tables {
        let c = &table.columns;
        // Where the row goes, the record of completions tells; a history of its own is its owner's to count.
        if !matches!(table.finish, Finish::Keep) {
            continue;
        }
        parts.push(format!(
            "select '{name}'::text, {begins}, 'done', count(*) from {name} t
where t.{finished} >= $1 and t.{state} = '{done}'::{state_type} group by 1, 2",
            name = table.name,
            begins = begins(&format!("t.{}", c.finished)),
            finished = c.finished,
            state = c.state,
            done = table.states.done,
            state_type = table.state_type,
        ));
    }
    parts.join("\nunion all\n")
}
