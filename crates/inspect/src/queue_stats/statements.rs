//! The SQL of the queue statistics, built from the tables' descriptors. Only compile-time constants go into the text.

use postrider::internal::is_dead;
use postrider::lease::{Finish, WorkTable};
use postrider::publisher::UNROUTABLE;
use postrider::transport::DELIVERIES;

use super::{BUCKET_SECONDS, CAP};

/// One row per table. Each count reads the claim index in its order and stops at the cap: leased items are at its
/// beginning, parked ones at its end.
pub(super) fn depths(tables: &[&'static WorkTable]) -> String {
    tables
        .iter()
        .map(|table| depth(table))
        .collect::<Vec<_>>()
        .join("\nunion all\n")
}

fn depth(table: &WorkTable) -> String {
    let c = &table.columns;
    let (id, due, until, code, finished) = (c.id, c.due, c.lease_until, c.error_code, c.finished);
    let limit = CAP + 1;
    let window = |columns: &str, filter: &str| {
        let filter = format!("t.{finished} is null and {filter}");
        match by_kind(table) {
            // The claim index begins with the kind: reading it once per kind stops at the cap for each.
            Some(kind) => format!(
                "(select w.* from kinds k, lateral (
        select {columns} from {table} t where {filter} and t.{kind} = k.kind
        order by t.{due}, t.{id} limit {limit}) w limit {limit}) w",
                table = table.name
            ),
            None => format!(
                "(select {columns} from {table} t where {filter} order by t.{due}, t.{id} limit {limit}) w",
                table = table.name
            ),
        }
    };
    let now = window(
        &format!("t.{due} as due, t.{until} as until, t.{code} as code"),
        &format!("t.{due} <= now()"),
    );
    let later = window(
        &format!("t.{code} as code"),
        &format!("t.{due} > now() and t.{due} < 'infinity'::timestamptz"),
    );
    let parked = window("1", &format!("t.{due} = 'infinity'::timestamptz"));
    format!(
        "({kinds}select '{name}'::text as work_table, n.ready, n.leased, n.expired, l.later,
       (select count(*) from {parked}) as parked, n.unroutable + l.unroutable as unroutable,
       (select count(*) from (select 1 from {name} t where {dead} limit {limit}) w) as dead, n.oldest_seconds
from (select count(*) filter (where w.until is null) as ready, count(*) filter (where w.until is not null) as leased,
             count(*) filter (where w.until < clock_timestamp()) as expired,
             count(*) filter (where w.code = '{UNROUTABLE}') as unroutable,
             extract(epoch from clock_timestamp() - min(w.due) filter (where w.until is null))::float8 as oldest_seconds
      from {now}) n,
     (select count(*) as later, count(*) filter (where w.code = '{UNROUTABLE}') as unroutable from {later}) l)",
        kinds = kinds(table),
        name = table.name,
        dead = is_dead(table),
    )
}

/// The column that the claim index begins with, where it doesn't begin with the due time.
fn by_kind(table: &WorkTable) -> Option<&'static str> {
    (table.name == DELIVERIES.name)
        .then_some(table.kind)
        .flatten()
}

/// The kinds that have unfinished items, found by a loose index scan.
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

/// `$1`: since when. Items that are deleted when done are in the completion log; items that stay are counted in their
/// table. The attempt log has the other outcomes.
pub(super) fn throughput(tables: &[&'static WorkTable]) -> String {
    let bucket = |at: &str| {
        format!("(floor(extract(epoch from {at}) / {BUCKET_SECONDS}) * {BUCKET_SECONDS})::bigint")
    };
    let mut parts = vec![
        format!(
            "select c.work_table, {} as starts_at, 'done' as outcome, sum(cardinality(c.ids))::bigint as count
from postrider.completion c where c.at >= $1 group by 1, 2",
            bucket("c.at")
        ),
        format!(
            "select a.work_table, {}, case a.outcome when 'done' then 'done_after_retry' else a.outcome end, count(*)
from postrider.attempt a where a.at >= $1 and a.outcome <> 'snooze' group by 1, 2, 3",
            bucket("a.at")
        ),
    ];
    for table in tables {
        let c = &table.columns;
        // Deleted items are in the completion log; the owner of a history table counts it.
        if !matches!(table.finish, Finish::Keep) {
            continue;
        }
        parts.push(format!(
            "select '{name}'::text, {bucket}, 'done', count(*) from {name} t
where t.{finished} >= $1 and t.{state} = '{done}'::{state_type} group by 1, 2",
            name = table.name,
            bucket = bucket(&format!("t.{}", c.finished)),
            finished = c.finished,
            state = c.state,
            done = table.states.done,
            state_type = table.state_type,
        ));
    }
    parts.join("\nunion all\n")
}
