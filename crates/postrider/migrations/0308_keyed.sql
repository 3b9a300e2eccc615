-- What postrider.enqueue does once a message is known to be sound. The library calls this directly, for it has made the same
-- checks, and its payload is stored as the text that it was given: going through jsonb would change the order of its keys
-- and, with them, its size.
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
        -- Held until commit, so that within a key ids rise in the order of commits. The look at the key's other
        -- items must be a statement of its own, after the lock: only then does it see what committed meanwhile.
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
        -- The first one may be done between the two statements: then its key is free.
        exit when enqueue_checked.id is not null;
    end loop;
end
$$;

create or replace function postrider.enqueue(
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
