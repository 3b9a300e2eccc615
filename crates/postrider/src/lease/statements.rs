//! The SQL of a work table, built once from its descriptor.
//!
//! Nothing but compile-time constants goes into these texts. Two habits keep their plans stable whatever the session's
//! settings: states are literals, and array parameters go through a sub-select, because a planner that sees an array's
//! length prefers to scan the whole table (measured: twice as slow).

use std::sync::Arc;

use super::table::{Finish, WorkTable};

/// A statement's text, shared and cheap to pass to the driver.
pub(super) type Text = Arc<str>;

#[derive(Debug)]
pub(super) struct Statements {
    pub claim_any: Text,
    pub claim_one: Text,
    pub claim_only: Text,
    pub claim_except: Text,
    pub find_suspects: Text,
    pub find_suspects_of_one: Text,
    pub claim_suspect: Text,
    pub renew: Text,
    pub done_in_place: Text,
    pub done: Text,
    pub release: Text,
    pub promote: Option<Text>,
    pub stranded: Option<Text>,
    pub redrive: Text,
    pub cancel: Text,
    pub park: Text,
    pub unpark: Text,
    pub archive: Text,
}

impl Statements {
    pub fn new(table: &WorkTable) -> Self {
        let make = Builder { table };
        Self {
            claim_any: make.claim("").into(),
            claim_one: make.claim(&make.one_kind()).into(),
            claim_only: make.claim(&make.kind_filter("= any")).into(),
            claim_except: make.claim(&make.kind_filter("<> all")).into(),
            find_suspects: make.find_suspects("").into(),
            find_suspects_of_one: make.find_suspects(&make.one_suspect_kind()).into(),
            claim_suspect: make.claim_suspect().into(),
            renew: make.renew().into(),
            done_in_place: make.done(&make.held_in_place()).into(),
            done: make.done(&make.held()).into(),
            release: make.release().into(),
            promote: table
                .ordering
                .map(|ordering| format!("select {}($1)", ordering.promote).into()),
            stranded: table
                .ordering
                .map(|ordering| format!("select {}($1)", ordering.stranded).into()),
            redrive: make.redrive().into(),
            cancel: make.cancel().into(),
            park: make.park().into(),
            unpark: make.unpark().into(),
            archive: make.archive().into(),
        }
    }

    pub fn all(&self) -> Vec<(&'static str, String)> {
        let named = [
            ("claim_any", Some(&self.claim_any)),
            ("claim_one", Some(&self.claim_one)),
            ("claim_only", Some(&self.claim_only)),
            ("claim_except", Some(&self.claim_except)),
            ("find_suspects", Some(&self.find_suspects)),
            ("find_suspects_of_one", Some(&self.find_suspects_of_one)),
            ("claim_suspect", Some(&self.claim_suspect)),
            ("renew", Some(&self.renew)),
            ("done_in_place", Some(&self.done_in_place)),
            ("done", Some(&self.done)),
            ("release", Some(&self.release)),
            ("promote", self.promote.as_ref()),
            ("stranded", self.stranded.as_ref()),
            ("redrive", Some(&self.redrive)),
            ("cancel", Some(&self.cancel)),
            ("park", Some(&self.park)),
            ("unpark", Some(&self.unpark)),
            ("archive", Some(&self.archive)),
        ];
        named
            .into_iter()
            .filter_map(|(name, text)| text.map(|text| (name, text.to_string())))
            .collect()
    }
}

/// Pairs of id and fence, which identify a lease.
const LEASES: &str = "unnest((select $1::bigint[]), (select $2::bigint[])) u(id, fence)";

/// The same, with the row's position when it was claimed.
const LEASES_IN_PLACE: &str =
    "unnest((select $1::bigint[]), (select $2::bigint[]), (select $4::tid[])) u(id, fence, place)";

struct Builder<'a> {
    table: &'a WorkTable,
}

impl Builder<'_> {
    fn state(&self, word: &str) -> String {
        format!("'{word}'::{}", self.table.state_type)
    }

    fn kind_filter(&self, operator: &str) -> String {
        match self.table.kind {
            Some(kind) => format!("and c.{kind} {operator} ($9)"),
            // A table of one kind still takes the parameter, so that callers need not differ.
            None => "and $9::text[] is not null".to_owned(),
        }
    }

    /// Equality with a single kind, which an index starting with the kind serves in order. A table whose kinds must not
    /// delay each other (a consumer group that is far behind) has such a claim index.
    fn one_kind(&self) -> String {
        match self.table.kind {
            Some(kind) => format!("and c.{kind} = ($9::text[])[1]"),
            None => "and $9::text[] is not null".to_owned(),
        }
    }

    fn one_suspect_kind(&self) -> String {
        self.table.kind.map_or_else(String::new, |kind| {
            format!("and s.{kind} = ($4::text[])[1]")
        })
    }

    /// Columns in the order that [`super::Item::from_row`] reads. Payload and headers are returned as they are: a cast
    /// to text would copy them once more on the server, which is noticeable from a few kilobytes on.
    fn returning(&self) -> String {
        let table = self.table;
        let c = &table.columns;
        let or_null = |expression: Option<&str>| expression.unwrap_or("null").to_owned();
        format!(
            "t.{}, t.{}, t.{}::integer, t.{}::integer, {}, {}, {}, ({})::text, {}, t.ctid",
            c.id,
            c.due,
            c.attempts,
            c.losses,
            table
                .kind
                .map_or("''".to_owned(), |kind| format!("t.{kind}::text")),
            table.payload,
            or_null(table.headers),
            or_null(table.trace),
            table
                .ordering
                .map_or("null::text".to_owned(), |ordering| format!(
                    "t.{}",
                    ordering.column
                )),
        )
    }

    fn take_lease(&self) -> String {
        let c = &self.table.columns;
        format!(
            "{} = {}, {} = now() + make_interval(secs => $1), {} = $2, {} = $3",
            c.state,
            self.state(self.table.states.leased),
            c.lease_until,
            c.fence,
            c.owner
        )
    }

    fn drop_lease(&self) -> String {
        let c = &self.table.columns;
        format!(
            "{} = null, {} = null, {} = null",
            c.lease_until, c.fence, c.owner
        )
    }

    /// Index: (due, id) over unfinished rows. `$4, $5`: the cursor; `$6`: the limit; `$7, $8`: the share of the ids.
    ///
    /// The claim runs alone in its transaction and may be lost in a crash of the server (the fence is random, so a lost
    /// claim can't be mistaken for another): its commit doesn't wait for the disk.
    ///
    /// The `case` hides the lease column's statistics from the planner: taken while everything was leased, they would
    /// suggest that hardly a row is left to claim, and it would read and sort the whole backlog for each claim. Nor can
    /// it know how many rows a share has.
    fn claim(&self, filter: &str) -> String {
        let c = &self.table.columns;
        format!(
            "update {table} t set {lease}
where t.ctid = any(array(
    select c.ctid from {table} c
    where (select set_config('synchronous_commit', 'off', true)) is not null
      and c.{finished} is null and c.{due} <= now()
      and (c.{due}, c.{id}) >= (coalesce($4, '-infinity'::timestamptz), $5)
      and case when c.{lease_until} is null then c.{losses} = 0 and (hashint8(c.{id}) & ($7 - 1)) = $8 end {filter}
    order by c.{due}, c.{id} limit $6 for update skip locked))
returning {returning}",
            table = self.table.name,
            lease = self.take_lease(),
            finished = c.finished,
            due = c.due,
            id = c.id,
            lease_until = c.lease_until,
            losses = c.losses,
            returning = self.returning(),
        )
    }

    fn suspect(&self, alias: &str) -> String {
        let c = &self.table.columns;
        format!(
            "({alias}.{until} < now() or ({alias}.{until} is null and {alias}.{losses} > 0))",
            until = c.lease_until,
            losses = c.losses
        )
    }

    /// Reads a window of the claim index after a position (`$1, $2`; `$3` rows): the suspects, and where the window
    /// ends.
    fn find_suspects(&self, filter: &str) -> String {
        let c = &self.table.columns;
        let kind = self.table.kind.map_or("true".to_owned(), |kind| {
            format!("($4::text[] is null or s.{kind} = any($4))")
        });
        let unused = if self.table.kind.is_none() {
            "where $4::text[] is null or true"
        } else {
            ""
        };
        format!(
            "select coalesce(array_agg(w.id) filter (where w.suspect), '{{}}'), count(*),
       (array_agg(w.due))[count(*)], (array_agg(w.id))[count(*)]
from (select s.{id} as id, s.{due} as due, {suspect} and {kind} as suspect
      from {table} s
      where s.{finished} is null and s.{due} <= now() {filter}
        and (s.{due}, s.{id}) > (coalesce($1, '-infinity'::timestamptz), $2)
      order by s.{due}, s.{id} limit $3) w {unused}",
            id = c.id,
            due = c.due,
            suspect = self.suspect("s"),
            table = self.table.name,
            finished = c.finished,
        )
    }

    /// Claims one of these items (`$4`) that is still suspect; an expired lease counts as a loss.
    fn claim_suspect(&self) -> String {
        let c = &self.table.columns;
        format!(
            "update {table} t set {lease}, {losses} = t.{losses} + (t.{lease_until} is not null)::integer
where t.ctid = (
    select c.ctid from {table} c
    where c.{id} = any(select unnest((select $4::bigint[])))
      and c.{finished} is null and c.{due} <= now() and {suspect}
    limit 1 for update skip locked)
returning {returning}",
            table = self.table.name,
            lease = self.take_lease(),
            losses = c.losses,
            lease_until = c.lease_until,
            id = c.id,
            finished = c.finished,
            due = c.due,
            suspect = self.suspect("c"),
            returning = self.returning(),
        )
    }

    fn renew(&self) -> String {
        let c = &self.table.columns;
        format!(
            "update {table} t set {until} = now() + make_interval(secs => $3)
from {LEASES} where t.{id} = u.id and t.{fence} = u.fence returning t.{id}",
            table = self.table.name,
            until = c.lease_until,
            id = c.id,
            fence = c.fence,
        )
    }

    /// Rows under these leases, found by id.
    fn held(&self) -> String {
        let c = &self.table.columns;
        format!(
            "{LEASES} where t.{} = u.id and t.{} = u.fence",
            c.id, c.fence
        )
    }

    /// Rows that are still where they were claimed, as they are unless the lease was renewed.
    fn held_in_place(&self) -> String {
        let c = &self.table.columns;
        format!(
            "{LEASES_IN_PLACE} where t.ctid = u.place and t.{} = u.id and t.{} = u.fence",
            c.id, c.fence
        )
    }

    /// `$3`: the worker. Returns the ids that were actually finished.
    fn done(&self, held: &str) -> String {
        let table = self.table.name;
        let c = &self.table.columns;
        let result = "select coalesce(array_agg(gone_id), '{}') from gone";
        match self.table.finish {
            Finish::Delete => format!(
                "with gone as (delete from {table} t using {held} returning t.{id} as gone_id),
logged as (
    insert into postrider.completion (work_table, worker, ids)
    select '{table}', $3, g.ids from (select array_agg(gone_id) as ids from gone) g where g.ids is not null)
{result}",
                id = c.id
            ),
            Finish::Keep => format!(
                "with gone as (
    update {table} t set {state} = {done}, {finished} = now(), {drop_lease}
    from {held} and $3::text is not null returning t.{id} as gone_id)
{result}",
                state = c.state,
                done = self.state(self.table.states.done),
                finished = c.finished,
                drop_lease = self.drop_lease(),
                id = c.id
            ),
            Finish::Move { history, columns } => format!(
                "with gone as (delete from {table} t using {held} and $3::text is not null
    returning t.{id} as gone_id, {qualified}),
moved as (insert into {history} ({columns}) select {columns} from gone)
{result}",
                id = c.id,
                qualified = qualify(columns),
            ),
        }
    }

    /// Every outcome but done, in one statement. `$3`: r(etry), s(nooze), d(ead), g(ive back, for released items);
    /// `$4`: the delay; `$5`: attempts spent; `$6`–`$8`: the failure; `$9`: a dead item's cause.
    fn release(&self) -> String {
        let c = &self.table.columns;
        let s = &self.table.states;
        let category = c.error_category.map_or_else(String::new, |category| {
            format!("{category} = coalesce(u.category, t.{category}),")
        });
        format!(
            "update {table} t set
    {state} = case when u.verb = 'd' then {dead} when u.verb = 'g' and t.{attempts} = 0 then {ready} else {waiting} end,
    {due} = case when u.verb in ('r', 's') then now() + make_interval(secs => u.delay) else t.{due} end,
    {finished} = case when u.verb = 'd' then now() end,
    {attempts} = t.{attempts} + u.spent,
    {code} = coalesce(u.code, t.{code}), {category}
    {message} = coalesce(u.message, t.{message}), {cause}
    {drop_lease}
from unnest((select $1::bigint[]), (select $2::bigint[]), (select $3::text[]), (select $4::float8[]),
            (select $5::smallint[]), (select $6::text[]), (select $7::text[]), (select $8::text[]), (select $9::text[]))
     u(id, fence, verb, delay, spent, code, category, message, cause)
where t.{id} = u.id and t.{fence} = u.fence returning t.{id}",
            table = self.table.name,
            state = c.state,
            dead = self.state(s.dead),
            ready = self.state(s.ready),
            waiting = self.state(s.waiting),
            due = c.due,
            finished = c.finished,
            attempts = c.attempts,
            code = c.error_code,
            message = c.error_message,
            cause = c
                .cause
                .map_or_else(String::new, |cause| format!("{cause} = u.cause,")),
            drop_lease = self.drop_lease(),
            id = c.id,
            fence = c.fence,
        )
    }

    /// Only dead items have a cause.
    fn set_cause(&self, value: &str) -> String {
        self.table
            .columns
            .cause
            .map_or_else(String::new, |cause| format!(", {cause} = {value}"))
    }

    fn set_parked(&self, value: &str) -> String {
        self.table
            .columns
            .parked
            .map_or_else(String::new, |parked| format!(", {parked} = {value}"))
    }

    /// Makes dead (or cancelled) items ready. Items with an ordering key queue up behind their key.
    fn redrive(&self) -> String {
        let c = &self.table.columns;
        let (due, parked, key) = match self.table.ordering {
            Some(ordering) => {
                let key = ordering.column;
                (
                    format!(
                        "case when t.{key} is null then now() else 'infinity'::timestamptz end"
                    ),
                    self.set_parked(&format!("case when t.{key} is not null then 'behind' end")),
                    format!("t.{key}"),
                )
            }
            None => (
                "now()".to_owned(),
                self.set_parked("null"),
                "null::text".to_owned(),
            ),
        };
        let cancelled = self
            .table
            .states
            .cancelled
            .map_or_else(String::new, |word| format!(", {}", self.state(word)));
        format!(
            "update {table} t set {state} = {ready}, {finished} = null, {attempts} = 0, {losses} = 0, {due_column} = {due}{parked}{cause}
where t.{id} = any($1) and t.{state} in ({dead}{cancelled}) returning t.{id}, {key}",
            table = self.table.name,
            state = c.state,
            ready = self.state(self.table.states.ready),
            finished = c.finished,
            attempts = c.attempts,
            losses = c.losses,
            due_column = c.due,
            cause = self.set_cause("null"),
            id = c.id,
            dead = self.state(self.table.states.dead),
        )
    }

    /// Cancels unfinished items, leased ones included: their worker's fence no longer matches. `$2`: the reason.
    fn cancel(&self) -> String {
        let c = &self.table.columns;
        let state = self
            .table
            .states
            .cancelled
            .unwrap_or(self.table.states.dead);
        let category = c
            .error_category
            .map_or_else(String::new, |category| format!("{category} = 'DATA',"));
        format!(
            "update {table} t set {column} = {state}, {finished} = now(), {code} = 'CANCELLED', {category}
    {message} = $2, {drop_lease}, {due} = case when t.{due} = 'infinity' then now() else t.{due} end{parked}{cause}
where t.{id} = any($1) and t.{finished} is null returning t.{id}, {key}",
            table = self.table.name,
            column = c.state,
            state = self.state(state),
            finished = c.finished,
            code = c.error_code,
            message = c.error_message,
            drop_lease = self.drop_lease(),
            due = c.due,
            parked = self.set_parked("null"),
            cause = if self.table.states.cancelled.is_none() {
                self.set_cause("'CANCELLED'")
            } else {
                String::new()
            },
            id = c.id,
            key = self
                .table
                .ordering
                .map_or("null::text".to_owned(), |ordering| format!("t.{}", ordering.column)),
        )
    }

    /// Takes items out of the head of the claim index. Leased ones continue.
    fn park(&self) -> String {
        let c = &self.table.columns;
        let unparked = c.parked.map_or_else(
            || format!("t.{} < 'infinity'", c.due),
            |parked| format!("t.{parked} is null"),
        );
        format!(
            "update {table} t set {due} = 'infinity'{parked}
where t.{id} = any($1) and t.{finished} is null and t.{until} is null and {unparked} and $2::text is not null
returning t.{id}, null::text",
            table = self.table.name,
            due = c.due,
            parked = self.set_parked("$2"),
            id = c.id,
            finished = c.finished,
            until = c.lease_until,
        )
    }

    /// Makes parked items claimable at once; those that wait behind their ordering key stay there.
    fn unpark(&self) -> String {
        let c = &self.table.columns;
        let not_behind = c
            .parked
            .map_or_else(String::new, |parked| format!("and t.{parked} <> 'behind'"));
        format!(
            "update {table} t set {due} = now(){parked}
where t.{id} = any($1) and t.{finished} is null and t.{due} = 'infinity' {not_behind} and $2::text is not null
returning t.{id}, null::text",
            table = self.table.name,
            due = c.due,
            parked = self.set_parked("null"),
            id = c.id,
            finished = c.finished,
        )
    }

    /// Archives dead items: by a state of their own, or by moving the row to `postrider.archive`.
    fn archive(&self) -> String {
        let c = &self.table.columns;
        let table = self.table.name;
        let dead = self.state(self.table.states.dead);
        match self.table.states.archived {
            Some(word) => format!(
                "update {table} t set {state} = {archived}{cause}
where t.{id} = any($1) and t.{state} = {dead} returning t.{id}, null::text",
                cause = self.set_cause("null"),
                state = c.state,
                archived = self.state(word),
                id = c.id,
            ),
            None => format!(
                "with gone as (delete from {table} t where t.{id} = any($1) and t.{state} = {dead}
    returning t.{id} as id, to_jsonb(t) as item),
kept as (insert into postrider.archive (work_table, item_id, item) select '{table}', id, item from gone)
select id, null::text from gone",
                id = c.id,
                state = c.state,
            ),
        }
    }
}

/// `a, b` → `t.a, t.b`
fn qualify(columns: &str) -> String {
    let names: Vec<String> = columns
        .split(',')
        .map(|name| format!("t.{}", name.trim()))
        .collect();
    names.join(", ")
}
