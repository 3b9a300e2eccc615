-- Postgres transport: subscriptions, the message log, deliveries, publishing, replay and retention.

-- Subscriptions are durable: a message is routable if its topic has one, whether or not its consumer is running.
create table postrider.subscription (
    topic          text        not null check (topic ~ '^[A-Za-z0-9][A-Za-z0-9._:/-]{0,199}$'),
    consumer_group text        not null check (consumer_group ~ '^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$'),
    since          timestamptz not null default clock_timestamp(),
    primary key (topic, consumer_group)
);

-- Subscribes a group; returns true if the subscription is new. For migrations:
--     select postrider.subscribe('payment.requested', 'wallet');
create function postrider.subscribe(topic text, consumer_group text) returns boolean language plpgsql as $$
#variable_conflict use_column
begin
    insert into postrider.subscription (topic, consumer_group)
    values (subscribe.topic, subscribe.consumer_group)
    on conflict do nothing;
    return found;
end
$$;

-- Removes a subscription; returns true if there was one. Existing deliveries stay.
create function postrider.unsubscribe(topic text, consumer_group text) returns boolean language plpgsql as $$
#variable_conflict use_column
begin
    delete from postrider.subscription s
    where s.topic = unsubscribe.topic and s.consumer_group = unsubscribe.consumer_group;
    return found;
end
$$;

-- Message log, partitioned into segments of about a day. Retention drops whole segments.
--
-- Each message is stored once. The primary key guarantees it within a segment; publishers check the older segments, which is
-- safe because a new segment is only opened while no publisher is active (see postrider.turn_segment).
create sequence postrider.message_position;

create table postrider.message (
    segment      integer     not null,
    -- Order of arrival.
    position     bigint      not null default nextval('postrider.message_position'),
    published_at timestamptz not null,
    id           uuid        not null,
    topic        text        not null,
    key          text,
    payload      json        not null,
    headers      jsonb,
    trace        text,
    primary key (id, segment)
) partition by list (segment);

-- For replay, which reads ranges of positions. Positions follow the order of pages, so a small BRIN index is enough.
create index message_position_range on postrider.message using brin (position) with (pages_per_range = 16);

-- Messages of a W3C trace id.
create index message_trace on postrider.message (substr(trace, 4, 32)) where trace is not null;

create table postrider.message_segment (
    id        integer     primary key check (id > 0),
    -- All messages of the segment are newer than this.
    opened_at timestamptz not null default clock_timestamp()
);

create table postrider.message_1 partition of postrider.message for values in (1);
insert into postrider.message_segment (id) values (1);

-- Publishers hold this lock in shared mode until commit; turn_segment takes it exclusively.
create function postrider.segment_lock() returns bigint language sql immutable parallel safe return 7312000001;

-- Replay and retention hold this lock, so that no message is dropped while it is being delivered again.
create function postrider.retention_lock() returns bigint language sql immutable parallel safe return 7312000002;

-- Opens a new segment if the current one is at least this old and not empty; returns its id, or null. Waits for publishers and
-- blocks new ones meanwhile, so callers must expect a lock_timeout. Runs with the owner's rights: a role that may only read
-- and write rows can maintain the log.
create function postrider.turn_segment(after interval) returns integer
    language plpgsql security definer set lock_timeout = '500ms' set search_path = pg_catalog, pg_temp as $$
declare
    current postrider.message_segment;
    new_id  integer;
begin
    perform pg_advisory_xact_lock(postrider.segment_lock());
    select * into current from postrider.message_segment order by id desc limit 1;
    if current.opened_at > clock_timestamp() - after
       or not exists (select from postrider.message m where m.segment = current.id) then
        return null;
    end if;
    new_id := current.id + 1;
    -- ATTACH takes a weaker lock than creating the partition in place: claims continue.
    execute format('create table postrider.message_%s (like postrider.message including defaults including indexes)', new_id);
    execute format('alter table postrider.message attach partition postrider.message_%s for values in (%s)', new_id, new_id);
    insert into postrider.message_segment (id) values (new_id);
    return new_id;
end
$$;

-- Deliveries: one row per message and consumer group, the work table of the transport's consumers. Small, as the payload is in
-- the log. Layout and fillfactor as in postrider.outbox.
create table postrider.delivery (
    id             bigint generated always as identity primary key,
    due            timestamptz not null default now(),
    created_at     timestamptz not null default now(),
    finished_at    timestamptz,
    lease_until    timestamptz,
    fence          bigint,
    state          postrider.work_state not null default 'ready',
    attempts       smallint not null default 0,
    losses         smallint not null default 0,
    lease_owner    text,
    segment        integer not null,
    message_id     uuid not null,
    consumer_group text not null,
    topic          text not null,
    -- Group, topic and message key, separated by spaces (group and topic contain none).
    ordering_key   text,
    parked         text,
    error_code     text,
    error_category text,
    error_message  text,
    cause          text collate "C",
    constraint delivery_leased_has_lease
        check ((state = 'leased') = (lease_until is not null)
           and (lease_until is null) = (fence is null)
           and (lease_until is null) = (lease_owner is null)),
    constraint delivery_finished_has_time check ((state in ('done', 'dead')) = (finished_at is not null)),
    constraint delivery_dead_has_reason   check (state <> 'dead' or num_nulls(error_code, cause) = 0),
    constraint delivery_waiting_not_fresh check (state <> 'ready' or attempts = 0),
    constraint delivery_parked_is_never_due check ((parked is not null) = (due = 'infinity')),
    constraint delivery_counts check (attempts >= 0 and losses >= 0)
) with (fillfactor = 45, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);

-- Claim order. Begins with the group, so that one group's backlog doesn't slow down another group.
create index delivery_claim on postrider.delivery (consumer_group, due, id) where finished_at is null;

-- Next delivery of an ordering key.
create index delivery_order on postrider.delivery (ordering_key, id)
    where ordering_key is not null and finished_at is null;

-- Dead letters: newest first, and by cause.
create index delivery_dead on postrider.delivery (finished_at, id) where finished_at is not null;
create index delivery_cause on postrider.delivery (cause, finished_at, id) where cause is not null;

-- Advisory lock of an ordering key. All groups share it, so that a publisher takes one lock per message, not per delivery.
create function postrider.delivery_lock(topic_and_key text) returns bigint
    language sql immutable parallel safe
    return hashtextextended(topic_and_key, 7311);

-- Makes the next delivery of each key due, after the first one has finished. Never waits; see postrider.promote.
create function postrider.promote_deliveries(keys text[]) returns text[] language plpgsql as $$
declare
    candidate text;
    busy      text[] := '{}';
begin
    for candidate in select distinct k from unnest(keys) k order by 1 loop
        if not pg_try_advisory_xact_lock(postrider.delivery_lock(substr(candidate, strpos(candidate, ' ') + 1))) then
            busy := busy || candidate;
            continue;
        end if;
        update postrider.delivery d set due = now(), parked = null
        where d.id = (
                select n.id from postrider.delivery n
                where n.ordering_key = candidate and n.finished_at is null and n.parked = 'behind'
                order by n.id limit 1)
          and not exists (
                select from postrider.delivery h
                where h.ordering_key = candidate and h.finished_at is null and h.parked is distinct from 'behind');
    end loop;
    return busy;
end
$$;

-- Keys whose deliveries all wait behind a first one that no longer exists, after a crash before promote_deliveries.
create function postrider.stranded_deliveries(most integer) returns text[]
    language sql stable
    return array(
        select d.ordering_key from postrider.delivery d
        where d.ordering_key is not null and d.finished_at is null
        group by d.ordering_key
        having bool_and(d.parked is not distinct from 'behind')
        limit most);

-- Stores a batch of messages in the log and delivers them to every subscribed group. Returns for each array position 'stored'
-- (now or earlier: each id is stored once) or 'unroutable' (no subscription; nothing was written). Can be called in any
-- transaction; the result holds if that transaction commits.
--
-- Its statements find rows by index, however many there are, and planning them for every batch was a tenth of the work: hence
-- the generic plan, and no sequential scans, as it may be planned while the tables are empty.
create function postrider.publish(
    ids uuid[], topics text[], keys text[], payloads text[], headers text[], traces text[],
    out place bigint, out status text
) returns setof record language plpgsql set plan_cache_mode = force_generic_plan set enable_seqscan = off as $$
#variable_conflict use_column
declare
    current integer;
    at      timestamptz;
begin
    perform pg_advisory_xact_lock_shared(postrider.segment_lock());
    -- Serializes the publishers of a key until commit, so that the lookup of its other deliveries below is reliable. Locks are
    -- taken in one order everywhere. A statement of its own: only the next one sees rows that were committed meanwhile.
    perform pg_advisory_xact_lock(l.lock) from (
        select distinct postrider.delivery_lock(u.topic || ' ' || u.key) as lock
        from unnest(topics, keys) u(topic, key)
        where u.key is not null order by 1) l;
    select max(s.id) into current from postrider.message_segment s;
    at := clock_timestamp();
    return query
    with wanted as materialized (
        select u.*, exists (select from postrider.subscription s where s.topic = u.topic) as routable
        from unnest(ids, topics, keys, payloads, headers, traces)
             with ordinality u(id, topic, key, payload, headers, trace, place)
    ), fresh as (
        -- The first of each id, unless an older segment has it. The scalar subquery with a limit is an index lookup per row
        -- whatever the planner's estimates; "not exists" may become a hash join over the whole log.
        select distinct on (w.id) w.*
        from wanted w
        where w.routable
          and (select m.segment from postrider.message m where m.id = w.id and m.segment < current limit 1) is null
        order by w.id, w.place
    ), stored as (
        insert into postrider.message as m (segment, published_at, id, topic, key, payload, headers, trace)
        select current, at, f.id, f.topic, f.key, f.payload::json, f.headers::jsonb, f.trace
        from fresh f order by f.place
        on conflict do nothing
        returning m.position, m.id, m.topic, m.key
    ), fanned as (
        select s.position, s.id, s.topic, g.consumer_group,
               g.consumer_group || ' ' || s.topic || ' ' || s.key as ordering_key
        from stored s join postrider.subscription g on g.topic = s.topic
    ), placed as (
        select f.*,
               f.ordering_key is not null and (
                   row_number() over (partition by f.ordering_key order by f.position) > 1
                   or (select d.id from postrider.delivery d
                       where d.ordering_key = f.ordering_key and d.finished_at is null limit 1) is not null) as behind
        from fanned f
    ), delivered as (
        insert into postrider.delivery (due, parked, segment, message_id, consumer_group, topic, ordering_key)
        select case when p.behind then 'infinity' else now() end, case when p.behind then 'behind' end,
               current, p.id, p.consumer_group, p.topic, p.ordering_key
        from placed p order by p.position, p.consumer_group
    )
    select w.place, case when w.routable then 'stored' else 'unroutable' end from wanted w order by w.place;
end
$$;

-- Moves messages from the outbox to the log and its deliveries in one statement, where both are in one database.
--
-- Nothing leaves the database, so nothing can happen twice and no lease is needed. Claims handle the rest: messages with an
-- ordering key (the next one must be promoted), topics without a subscription (they wait visibly), topics that the caller has
-- handlers for, and messages that were tried or lost before.
--
-- Moves at most "most" messages, starting at a position; returns how many and the position of the last. Message ids begin with
-- the 16 digits of "origin". Plan settings as for postrider.publish.
create function postrider.relay(
    origin text, except_topics text[], worker text, from_due timestamptz, from_id bigint, most integer,
    out moved integer, out last_due timestamptz, out last_id bigint
) language plpgsql set plan_cache_mode = force_generic_plan set enable_seqscan = off as $$
#variable_conflict use_column
declare
    current integer;
begin
    perform pg_advisory_xact_lock_shared(postrider.segment_lock());
    select max(s.id) into current from postrider.message_segment s;
    with taken as (
        delete from postrider.outbox o
        where o.ctid = any(array(
            select c.ctid from postrider.outbox c
            where c.finished_at is null and c.due <= now()
              and (c.due, c.id) >= (coalesce(from_due, '-infinity'::timestamptz), from_id)
              and case when c.state = 'ready' then c.losses = 0 and c.ordering_key is null end
              and c.topic = any(array(select s.topic from postrider.subscription s))
              and c.topic <> all(except_topics)
            order by c.due, c.id limit most for update skip locked))
        returning o.id, o.due, (origin || to_hex((-9223372036854775808)::bigint | o.id))::uuid as message_id,
                  o.topic, o.payload, o.headers, o.trace
    ), stored as (
        -- A redriven message may already be in the log, if it died after it was stored: see postrider.publish.
        insert into postrider.message as m (segment, published_at, id, topic, payload, headers, trace)
        select current, clock_timestamp(), t.message_id, t.topic, t.payload, t.headers, t.trace
        from taken t
        where (select m.segment from postrider.message m where m.id = t.message_id and m.segment < current limit 1) is null
        order by t.due, t.id
        on conflict do nothing
        returning m.position, m.id, m.topic
    ), delivered as (
        insert into postrider.delivery (segment, message_id, consumer_group, topic)
        select current, s.id, g.consumer_group, s.topic
        from stored s join postrider.subscription g on g.topic = s.topic
        order by s.position, g.consumer_group
    ), logged as (
        insert into postrider.completion (work_table, worker, ids)
        select 'postrider.outbox', worker, array_agg(t.id) from taken t having count(*) > 0
    )
    select count(*), max(t.due), max(t.id) filter (where t.due = (select max(l.due) from taken l))
    into moved, last_due, last_id
    from taken t;
end
$$;

-- Stores a batch of messages from an external broker in the log and delivers them to one group. The inbox ensures, in the same
-- transaction, that each group gets a message once however often the broker delivers it; the '>' prefix keeps its consumer
-- names apart from all others. Returns the number of new messages. Can be called in any transaction.
create function postrider.take_in(
    consumer_group text, ids uuid[], topics text[], keys text[], payloads text[], headers text[], traces text[]
) returns bigint language plpgsql as $$
#variable_conflict use_column
declare
    current integer;
    at      timestamptz;
    taken   bigint;
begin
    perform pg_advisory_xact_lock_shared(postrider.segment_lock());
    -- Another group may have logged the message in a segment that must not be dropped now.
    perform pg_advisory_xact_lock_shared(postrider.retention_lock());
    -- See postrider.publish.
    perform pg_advisory_xact_lock(l.lock) from (
        select distinct postrider.delivery_lock(u.topic || ' ' || u.key) as lock
        from unnest(topics, keys) u(topic, key)
        where u.key is not null order by 1) l;
    select max(s.id) into current from postrider.message_segment s;
    at := clock_timestamp();
    with offered as materialized (
        select distinct on (u.id) u.*
        from unnest(ids, topics, keys, payloads, headers, traces)
             with ordinality u(id, topic, key, payload, headers, trace, place)
        order by u.id, u.place
    ), first as (
        -- Sorted: two batches with the same ids wait for each other instead of deadlocking.
        insert into postrider.inbox as i (consumer, message_id)
        select case when octet_length(take_in.consumer_group) < 100 then '>' || take_in.consumer_group
                    else '>' || md5(take_in.consumer_group) end, o.id::text
        from offered o order by 2
        on conflict (consumer, message_id) do nothing
        returning i.message_id
    ), fresh as materialized (
        select o.*,
               (select m.segment from postrider.message m where m.id = o.id and m.segment < current limit 1) as older,
               take_in.consumer_group || ' ' || o.topic || ' ' || o.key as ordering_key
        from offered o join first f on f.message_id = o.id::text
    ), logged as (
        insert into postrider.message as m (segment, published_at, id, topic, key, payload, headers, trace)
        select current, at, f.id, f.topic, f.key, f.payload::json, f.headers::jsonb, f.trace
        from fresh f where f.older is null order by f.place
        on conflict do nothing
    ), placed as (
        select f.*,
               f.ordering_key is not null and (
                   row_number() over (partition by f.ordering_key order by f.place) > 1
                   or (select d.id from postrider.delivery d
                       where d.ordering_key = f.ordering_key and d.finished_at is null limit 1) is not null) as behind
        from fresh f
    ), delivered as (
        insert into postrider.delivery (due, parked, segment, message_id, consumer_group, topic, ordering_key)
        select case when p.behind then 'infinity' else now() end, case when p.behind then 'behind' end,
               coalesce(p.older, current), p.id, take_in.consumer_group, p.topic, p.ordering_key
        from placed p order by p.place
        returning 1
    )
    select count(*) into taken from delivered;
    return taken;
end
$$;

-- Positions that a replay covers: (after, until]. Waits for publishers, so that no message can still appear in between.
create function postrider.replay_range(topic text, since timestamptz, from_id uuid, out after bigint, out until bigint)
    language plpgsql as $$
#variable_conflict use_column
begin
    if (replay_range.since is null) = (replay_range.from_id is null) then
        raise exception using errcode = '22023', message = 'replay: either from a time or from a message id';
    end if;
    perform pg_advisory_xact_lock(postrider.segment_lock());
    select min(m.position) - 1, max(m.position) into after, until
    from postrider.message m
    where m.topic = replay_range.topic
      and (m.published_at >= replay_range.since
           or m.position >= (select b.position from postrider.message b where b.id = replay_range.from_id));
    if after is null and replay_range.from_id is not null
       and not exists (select from postrider.message m where m.id = replay_range.from_id) then
        raise exception using errcode = '22023',
            message = 'replay: this message is not in the log; it was never published here, or retention has dropped it';
    end if;
end
$$;

-- Replays one chunk: the messages of the next "most" positions, except those that the group hasn't finished yet. Returns the
-- position reached and the number of new deliveries.
create function postrider.replay_piece(
    consumer_group text, topic text, after bigint, until bigint, most integer,
    out reached bigint, out deliveries bigint
) language plpgsql as $$
#variable_conflict use_column
begin
    reached := least(replay_piece.after + replay_piece.most, replay_piece.until);
    -- Segments are not dropped during a replay.
    perform pg_advisory_xact_lock(postrider.retention_lock());
    perform pg_advisory_xact_lock(l.lock) from (
        select distinct postrider.delivery_lock(m.topic || ' ' || m.key) as lock
        from postrider.message m
        where m.topic = replay_piece.topic and m.position > replay_piece.after and m.position <= reached
          and m.key is not null order by 1) l;
    with again as (
        select m.segment, m.position, m.id, m.topic,
               replay_piece.consumer_group || ' ' || m.topic || ' ' || m.key as ordering_key
        from postrider.message m
        where m.topic = replay_piece.topic and m.position > replay_piece.after and m.position <= reached
          and not exists (
              select from postrider.delivery d
              where d.consumer_group = replay_piece.consumer_group and d.message_id = m.id and d.finished_at is null)
    ), placed as (
        select a.*,
               a.ordering_key is not null and (
                   row_number() over (partition by a.ordering_key order by a.position) > 1
                   or exists (select from postrider.delivery d
                              where d.ordering_key = a.ordering_key and d.finished_at is null)) as behind
        from again a
    ), delivered as (
        insert into postrider.delivery (due, parked, segment, message_id, consumer_group, topic, ordering_key)
        select case when p.behind then 'infinity' else now() end, case when p.behind then 'behind' end,
               p.segment, p.id, replay_piece.consumer_group, p.topic, p.ordering_key
        from placed p order by p.position
        returning 1
    )
    select count(*) into deliveries from delivered;
end
$$;

-- Drops segments whose messages are all older than this and that no delivery refers to, neither an unfinished one nor a dead
-- letter (it may be redriven). Keeps the newest segment. Returns the ids of the dropped segments. Runs with the owner's rights,
-- as postrider.turn_segment does.
create function postrider.drop_segments(older_than interval) returns integer[]
    language plpgsql security definer set lock_timeout = '500ms' set search_path = pg_catalog, pg_temp as $$
declare
    candidate integer;
    dropped   integer[] := '{}';
begin
    perform pg_advisory_xact_lock(postrider.retention_lock());
    for candidate in
        select s.id from postrider.message_segment s
        where exists (
                select from postrider.message_segment n
                where n.id > s.id and n.opened_at < clock_timestamp() - older_than)
          and not exists (select from postrider.delivery d where d.segment = s.id)
        order by s.id
    loop
        execute format('drop table postrider.message_%s', candidate);
        delete from postrider.message_segment s where s.id = candidate;
        dropped := dropped || candidate;
    end loop;
    return dropped;
end
$$;

revoke execute on function postrider.turn_segment(interval), postrider.drop_segments(interval) from public;
