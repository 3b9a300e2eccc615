-- The engine's own work table: messages that were accepted and wait to go out.
--
-- Shape: a claim changes lease_until, fence, state and lease_owner, which lie side by side (an update's log record
-- then holds little more than those bytes) and which no index and no index predicate mentions (the update stays on
-- its page). fillfactor 45 leaves each row room for exactly one larger copy of itself: measured 100 % heap-only,
-- against 81 % at 50.

-- In this order, so that what is finished compares as 'done' or greater.
create type postrider.work_state as enum ('ready', 'leased', 'waiting', 'done', 'dead');

create table postrider.outbox (
    id             bigint generated always as identity primary key,
    due            timestamptz not null default now(),
    created_at     timestamptz not null default now(),
    -- Set by finishing alone; tells unfinished rows apart in every index.
    finished_at    timestamptz,
    lease_until    timestamptz,
    fence          bigint,
    state          postrider.work_state not null default 'ready',
    attempts       smallint not null default 0,
    losses         smallint not null default 0,
    lease_owner    text,
    topic          varchar(200) not null,
    payload        json not null,
    headers        jsonb,
    ordering_key   varchar(200),
    dedupe_key     varchar(200),
    trace          text,
    -- Why an item that is due at infinity waits: 'behind' (an older one of its ordering key goes first) or a person's words.
    parked         text,
    error_code     text,
    error_category text,
    error_message  text
) with (fillfactor = 45, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);

-- Every pair of state and columns that must not exist is refused. By triggers rather than CHECK constraints, because
-- a check is parsed anew by every statement: as checks these cost a single enqueue more than its whole insert
-- (27 µs against 10), as a condition on updates nothing there, and on claims the same. An insert begins as 'ready',
-- and only one that does not is looked at.
create function postrider.refuse_unsound() returns trigger language plpgsql as $$
declare
    problem text := case
        when num_nonnulls(new.lease_until, new.fence, new.lease_owner) <> case when new.state = 'leased' then 3 else 0 end
            then 'leased, and only leased, items have lease_until, fence and lease_owner'
        when (new.finished_at is not null) <> (new.state >= 'done')
            then 'finished, and only finished, items have finished_at'
        when new.state = 'dead' and new.error_code is null
            then 'a dead item has its error_code'
        when new.state = 'ready' and new.attempts <> 0
            then 'an item that failed before is waiting, not ready'
        when (new.parked is null) <> (new.due < 'infinity')
            then 'parked, and only parked, items are due at infinity'
    end;
begin
    if problem is not null then
        raise check_violation using
            message = format('%s item %s: %s', tg_table_name, new.id, problem),
            schema = tg_table_schema, table = tg_table_name, constraint = tg_name;
    end if;
    return null;
end
$$;

create trigger outbox_begins_sound after insert on postrider.outbox for each row
    when (new.state <> 'ready')
    execute function postrider.refuse_unsound();

create trigger outbox_stays_sound after update on postrider.outbox for each row
    when (num_nonnulls(new.lease_until, new.fence, new.lease_owner) <> case when new.state = 'leased' then 3 else 0 end
       or (new.finished_at is not null) <> (new.state >= 'done')
       or new.state = 'dead' and new.error_code is null
       or new.state = 'ready' and new.attempts <> 0
       or (new.parked is null) <> (new.due < 'infinity'))
    execute function postrider.refuse_unsound();

-- Large payloads are compressed by lz4 where the server was built with it: much less work than its default.
do $$
begin
    alter table postrider.outbox alter column payload set compression lz4;
exception when feature_not_supported then
    null;
end
$$;

-- The claim: due first, oldest first.
create index outbox_claim on postrider.outbox (due, id) where finished_at is null;

-- A dedupe key is unique within its topic for as long as the message is unfinished.
create unique index outbox_dedupe on postrider.outbox (topic, dedupe_key)
    where dedupe_key is not null and finished_at is null;

-- Who is next in an ordering key.
create index outbox_order on postrider.outbox (ordering_key, id)
    where ordering_key is not null and finished_at is null;

-- Dead letters, newest first.
create index outbox_dead on postrider.outbox (finished_at, id) where finished_at is not null;
