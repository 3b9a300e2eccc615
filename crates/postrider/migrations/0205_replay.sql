-- Delivering again from the log, and letting go of its oldest part.

-- Where a replay goes: after one position, up to another. Waits for publishers, so that nothing can still appear between.
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

-- One piece of a replay: the messages of the next "most" positions; what the group has yet to finish is left out.
-- Returns how far it got and how many deliveries it made.
create function postrider.replay_piece(
    consumer_group text, topic text, after bigint, until bigint, most integer,
    out reached bigint, out deliveries bigint
) language plpgsql as $$
#variable_conflict use_column
begin
    reached := least(replay_piece.after + replay_piece.most, replay_piece.until);
    -- No segment is dropped while its messages are being delivered again.
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

-- Drops segments whose messages are all older than this and that no delivery refers to: neither an unfinished one nor a
-- dead letter, which may yet be redriven. The newest segment stays. Returns the numbers of those dropped.
create function postrider.drop_segments(older_than interval) returns integer[]
    language plpgsql set lock_timeout = '500ms' as $$
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
