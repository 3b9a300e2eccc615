-- Outbox: the library's own work table. Holds accepted messages until they are published.
--
-- Layout: a claim updates lease_until, fence, state and lease_owner. They are adjacent, which keeps the WAL record small, and
-- no index or index predicate uses them, which keeps the update heap-only. fillfactor 45 leaves each row space for one larger
-- copy of itself: 100 % heap-only updates measured, against 81 % at 50.

-- Ordered so that finished states compare greater than or equal to 'done'.
create type postrider.work_state as enum ('ready', 'leased', 'waiting', 'done', 'dead');

create table postrider.outbox (
    id             bigint generated always as identity primary key,
    due            timestamptz not null default now(),
    created_at     timestamptz not null default now(),
    -- Set when the item is finished and never before: index predicates use it to select unfinished rows.
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
    -- Why an item with due = infinity waits: 'behind' (an older item of its ordering key goes first) or an operator's reason.
    parked         text,
    error_code     text,
    error_category text,
    error_message  text,
    -- What a dead item has in common with others: code and message without the variable parts. Only dead items have one, so
    -- neither a claim nor a success touches it or its index.
    cause          text collate "C",
    -- No writer can store a state whose columns don't match it.
    constraint outbox_leased_has_lease
        check (num_nulls(lease_until, fence, lease_owner) = case state when 'leased' then 0 else 3 end),
    constraint outbox_finished_has_time check ((finished_at is null) = (state < 'done')),
    constraint outbox_dead_has_reason check (state <> 'dead' or num_nulls(error_code, cause) = 0),
    constraint outbox_waiting_not_fresh check (state <> 'ready' or attempts = 0),
    constraint outbox_parked_is_never_due check ((parked is null) = (due < 'infinity'))
) with (fillfactor = 45, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);

-- lz4 compresses large payloads at a fraction of the default's cost. Not every server is built with it.
do $$
begin
    alter table postrider.outbox alter column payload set compression lz4;
exception when feature_not_supported then
    null;
end
$$;

-- Claim order: earliest due first, then oldest first.
create index outbox_claim on postrider.outbox (due, id) where finished_at is null;

-- A dedupe key is unique within its topic while the message is unfinished.
create unique index outbox_dedupe on postrider.outbox (topic, dedupe_key)
    where dedupe_key is not null and finished_at is null;

-- Next item of an ordering key.
create index outbox_order on postrider.outbox (ordering_key, id)
    where ordering_key is not null and finished_at is null;

-- Dead letters: newest first, and by cause.
create index outbox_dead on postrider.outbox (finished_at, id) where finished_at is not null;
create index outbox_cause on postrider.outbox (cause, finished_at, id) where cause is not null;

-- Messages of a W3C trace id.
create index outbox_trace on postrider.outbox (substr(trace, 4, 32)) where trace is not null;

-- Advisory lock of an ordering key. Keys with the same hash only wait for each other.
create function postrider.ordering_lock(key text) returns bigint
    language sql immutable parallel safe
    return hashtextextended(key, 7310);

-- Inserts a message that has been validated. The library calls this directly because it makes the same checks as
-- postrider.enqueue, and because its payload is stored as given: a round trip through jsonb would reorder keys and change the
-- size.
create function postrider.enqueue_checked(
    topic        text,
    payload      json,
    ordering_key text,
    dedupe_key   text,
    headers      jsonb,
    delay        interval,
    trace        text,
    out id        bigint,
    out duplicate boolean
) language plpgsql as $$
#variable_conflict use_column
declare
    behind boolean := false;
begin
    if enqueue_checked.ordering_key is not null then
        -- Held until commit, so that ids within a key follow commit order. The lookup of the key's other items must be a
        -- statement of its own after the lock: only then does it see rows that were committed meanwhile.
        perform pg_advisory_xact_lock(postrider.ordering_lock(enqueue_checked.ordering_key));
        behind := exists (
            select from postrider.outbox o
            where o.ordering_key = enqueue_checked.ordering_key and o.finished_at is null);
    end if;

    loop
        insert into postrider.outbox as o
            (due, topic, payload, headers, ordering_key, dedupe_key, trace, parked)
        values (
            case when behind then 'infinity' else now() + coalesce(enqueue_checked.delay, interval '0') end,
            enqueue_checked.topic, enqueue_checked.payload, enqueue_checked.headers, enqueue_checked.ordering_key,
            enqueue_checked.dedupe_key, enqueue_checked.trace, case when behind then 'behind' end)
        on conflict (topic, dedupe_key) where dedupe_key is not null and finished_at is null do nothing
        returning o.id into enqueue_checked.id;
        duplicate := enqueue_checked.id is null;
        exit when not duplicate;

        select o.id into enqueue_checked.id
        from postrider.outbox o
        where o.topic = enqueue_checked.topic and o.dedupe_key = enqueue_checked.dedupe_key and o.finished_at is null;
        -- The first message may finish between the two statements, which frees its dedupe key: try again.
        exit when enqueue_checked.id is not null;
    end loop;
end
$$;

-- Accepts one message in the caller's transaction, from any language:
--     select id from postrider.enqueue('invoice.sent', '{"invoice": 7}', ordering_key => 'customer-3');
-- If an unfinished message has the same dedupe key, returns that message's id and duplicate = true.
create function postrider.enqueue(
    topic        text,
    payload      jsonb default 'null',
    ordering_key text default null,
    dedupe_key   text default null,
    headers      jsonb default null,
    delay        interval default null,
    trace        text default null,
    out id        bigint,
    out duplicate boolean
) language plpgsql as $$
declare
    body text := enqueue.payload::text;
begin
    if enqueue.topic is null or enqueue.topic !~ '^[A-Za-z0-9][A-Za-z0-9._:/-]{0,199}$' then
        raise exception using errcode = '22023',
            message = 'topic: 1 to 200 letters, digits and . _ : / -, beginning with a letter or digit';
    end if;
    if octet_length(body) > 1048576 then
        raise exception using errcode = '22023',
            message = format('payload: %s bytes, the limit is 1048576; store the body elsewhere and send its address', octet_length(body));
    end if;
    if length(enqueue.ordering_key) not between 1 and 200 then
        raise exception using errcode = '22023', message = 'ordering_key: 1 to 200 characters';
    end if;
    if length(enqueue.dedupe_key) not between 1 and 200 then
        raise exception using errcode = '22023', message = 'dedupe_key: 1 to 200 characters';
    end if;
    if jsonb_typeof(enqueue.headers) <> 'object' or octet_length(enqueue.headers::text) > 16384 then
        raise exception using errcode = '22023', message = 'headers: a JSON object of at most 16384 bytes';
    end if;
    if enqueue.delay < interval '0' or enqueue.delay > interval '3650 days' then
        raise exception using errcode = '22023', message = 'delay: from 0 to 3650 days';
    end if;
    if enqueue.delay > interval '0' and enqueue.ordering_key is not null then
        raise exception using errcode = '22023',
            message = 'delay: not together with ordering_key, for the whole key would wait behind it';
    end if;
    if enqueue.trace !~ '^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$' then
        raise exception using errcode = '22023', message = 'trace: a W3C traceparent';
    end if;

    select e.id, e.duplicate into enqueue.id, enqueue.duplicate
    from postrider.enqueue_checked(enqueue.topic, body::json, enqueue.ordering_key, enqueue.dedupe_key,
                                   enqueue.headers, enqueue.delay, enqueue.trace) e;
end
$$;

-- Makes the next item of each key due, after the first one has finished. Never waits: returns the keys whose lock an open
-- transaction holds, to be tried again after that transaction.
create function postrider.promote(keys text[]) returns text[] language plpgsql as $$
declare
    candidate text;
    busy      text[] := '{}';
begin
    for candidate in select distinct k from unnest(keys) k order by 1 loop
        if not pg_try_advisory_xact_lock(postrider.ordering_lock(candidate)) then
            busy := busy || candidate;
            continue;
        end if;
        update postrider.outbox o set due = now(), parked = null
        where o.id = (
                select n.id from postrider.outbox n
                where n.ordering_key = candidate and n.finished_at is null and n.parked = 'behind'
                order by n.id limit 1)
          and not exists (
                select from postrider.outbox h
                where h.ordering_key = candidate and h.finished_at is null and h.parked is distinct from 'behind');
    end loop;
    return busy;
end
$$;

-- Keys whose items all wait behind a first item that no longer exists: after a crash between settle and promote, or after an
-- enqueue whose snapshot was older than the end of the first item.
create function postrider.stranded_keys(most integer) returns text[]
    language sql stable
    return array(
        select o.ordering_key from postrider.outbox o
        where o.ordering_key is not null and o.finished_at is null
        group by o.ordering_key
        having bool_and(o.parked is not distinct from 'behind')
        limit most);

-- Statistics of a table that holds waiting rows. Without statistics the planner assumes that one row in 200 is unfinished, and
-- then reads and sorts a large first backlog for every claim. The sample rows go; the statistics stay until the next ANALYZE.
insert into postrider.outbox (id, topic, payload) overriding system value
select -n, 'first.statistics', 'null' from generate_series(1, 300) n;
analyze postrider.outbox;
delete from postrider.outbox where id < 0;
