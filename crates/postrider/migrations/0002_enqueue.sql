-- Accept one message in the caller's transaction, from any language:
--     select id from postrider.enqueue('invoice.sent', '{"invoice": 7}', ordering_key => 'customer-3');
-- With a dedupe key that is still unfinished, the first message's id comes back and "duplicate" is true.
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
#variable_conflict use_column
declare
    behind boolean := false;
    body   json := enqueue.payload::text::json;
begin
    if enqueue.topic is null or enqueue.topic !~ '^[A-Za-z0-9][A-Za-z0-9._:/-]{0,199}$' then
        raise exception using errcode = '22023',
            message = 'topic: 1 to 200 letters, digits and . _ : / -, beginning with a letter or digit';
    end if;
    if octet_length(body::text) > 1048576 then
        raise exception using errcode = '22023',
            message = format('payload: %s bytes, the limit is 1048576; store the body elsewhere and send its address', octet_length(body::text));
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

    if enqueue.ordering_key is not null then
        -- Held until commit, so that within a key ids rise in the order of commits. The look at the key's other
        -- items must be a statement of its own, after the lock: only then does it see what committed meanwhile.
        perform pg_advisory_xact_lock(postrider.ordering_lock(enqueue.ordering_key));
        behind := exists (
            select from postrider.outbox o
            where o.ordering_key = enqueue.ordering_key and o.finished_at is null);
    end if;

    insert into postrider.outbox as o
        (due, topic, payload, headers, ordering_key, dedupe_key, trace, parked)
    values (
        case when behind then 'infinity' else now() + coalesce(enqueue.delay, interval '0') end,
        enqueue.topic, body, enqueue.headers, enqueue.ordering_key, enqueue.dedupe_key, enqueue.trace,
        case when behind then 'behind' end)
    on conflict (topic, dedupe_key) where dedupe_key is not null and finished_at is null do nothing
    returning o.id into enqueue.id;

    duplicate := enqueue.id is null;
    if duplicate then
        select o.id into enqueue.id
        from postrider.outbox o
        where o.topic = enqueue.topic and o.dedupe_key = enqueue.dedupe_key and o.finished_at is null;
    end if;
end
$$;

-- One advisory lock per ordering key; two keys that share one merely wait for each other.
create function postrider.ordering_lock(key text) returns bigint
    language sql immutable parallel safe
    return hashtextextended(key, 7310);

-- The heads of these keys are gone: make the next of each due. Never waits: a key whose lock an open transaction
-- holds is handed back, to be tried again once that transaction has ended.
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

-- Keys whose items all wait behind a head that is no longer there: a crash between settling and promoting, or a
-- caller whose snapshot was older than the head's end.
create function postrider.stranded_keys(most integer) returns text[]
    language sql stable
    return array(
        select o.ordering_key from postrider.outbox o
        where o.ordering_key is not null and o.finished_at is null
        group by o.ordering_key
        having bool_and(o.parked is not distinct from 'behind')
        limit most);
