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
    error_message  text,
    -- Every pair of state and columns that must not exist is refused, whoever writes.
    constraint outbox_leased_has_lease
        check (num_nulls(lease_until, fence, lease_owner) = case state when 'leased' then 0 else 3 end),
    constraint outbox_finished_has_time check ((finished_at is null) = (state < 'done')),
    constraint outbox_dead_has_reason check (state <> 'dead' or error_code is not null),
    constraint outbox_waiting_not_fresh check (state <> 'ready' or attempts = 0),
    constraint outbox_parked_is_never_due check ((parked is null) = (due < 'infinity'))
) with (fillfactor = 45, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);

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
