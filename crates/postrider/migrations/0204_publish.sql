-- Publishing: into the log, and to every subscribed group, in one call per batch.
--
-- Answers for each place of the arrays: 'stored' (now or before: an id is stored once), or 'unroutable' (nobody subscribed;
-- nothing was written). May be called in any transaction; what it says holds if that transaction commits.
create function postrider.publish(
    ids uuid[], topics text[], keys text[], payloads text[], headers text[], traces text[],
    out place bigint, out status text
) returns setof record language plpgsql as $$
#variable_conflict use_column
declare
    current integer;
    at      timestamptz;
begin
    perform pg_advisory_xact_lock_shared(postrider.segment_lock());
    -- One publisher per key at a time, until commit, so that the look at the key's other deliveries below is true.
    -- In one order everywhere. It must be a statement of its own: only the next one sees what committed meanwhile.
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
        -- The first of each id, if no older segment has it. A scalar sub-select with a limit is looked up by index for
        -- each row, whatever the planner thinks of the log's size; "not exists" may become a hash over the whole log.
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
