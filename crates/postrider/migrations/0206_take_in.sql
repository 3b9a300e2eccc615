-- Taking in messages from a broker outside: into the log, and to one group, in one call per batch.
--
-- Each message once per group, however often the broker delivers it: the inbox remembers, in the same transaction. Its
-- consumer is named so that it can't be a consumer of anybody else. Returns how many were new. May be called in any transaction.
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
    -- The log may have a message from another group, in a segment that must not be dropped just now.
    perform pg_advisory_xact_lock_shared(postrider.retention_lock());
    -- As in postrider.publish.
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
        -- Sorted, so that two batches with the same ids wait for each other instead of deadlocking.
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
