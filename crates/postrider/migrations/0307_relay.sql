-- Publishing where outbox and log live in one database: what waits goes from one to the other in a single statement.
--
-- Nothing leaves the database, so nothing can be done twice and no lease is needed. Left to claims as ever: messages with a
-- key, whose next one must be promoted; topics that nobody subscribed to, which wait visibly; topics that the caller has
-- handlers for; and whatever was tried or lost before.

-- Takes at most so many from a position on; says how many, and where the last one was. The id of a message begins with the
-- 16 digits of its origin. Its plan is made once, perhaps while the outbox is empty: it must not be one that reads the whole
-- table, which seems quickest then.
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
        -- One that was given up after it had been stored, and then redriven, may be in the log already: see postrider.publish.
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
