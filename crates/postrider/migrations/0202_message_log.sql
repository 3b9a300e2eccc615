-- The retained log of the Postgres transport. A segment is about a day; retention drops segments whole.
--
-- A message is stored once: the key keeps it so within a segment, and a publisher looks into the older ones, which is
-- safe because all publishers are out when a segment is turned (see postrider.turn_segment).
create sequence postrider.message_position;

create table postrider.message (
    segment      integer     not null,
    -- The order of arrival.
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

-- Replay reads ranges of positions, which lie in the order of the pages: a few bytes per range are index enough.
create index message_position_range on postrider.message using brin (position) with (pages_per_range = 16);

create table postrider.message_segment (
    id        integer     primary key check (id > 0),
    -- No message of this segment is older.
    opened_at timestamptz not null default clock_timestamp()
);

create table postrider.message_1 partition of postrider.message for values in (1);
insert into postrider.message_segment (id) values (1);

-- Publishers hold this lock shared until they commit; turning a segment takes it alone.
create function postrider.segment_lock() returns bigint language sql immutable parallel safe return 7312000001;

-- Replay and retention take this one, so that no message is dropped that is just being delivered again.
create function postrider.retention_lock() returns bigint language sql immutable parallel safe return 7312000002;

-- Begins a new segment if the current one is this old and not empty; returns its number, or null. Whoever calls it
-- should be ready for a lock_timeout: it waits for publishers, and holds up new ones while it waits.
create function postrider.turn_segment(after interval) returns integer
    language plpgsql set lock_timeout = '500ms' as $$
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
    -- Attaching takes a weaker lock than creating in place: claims go on.
    execute format('create table postrider.message_%s (like postrider.message including defaults including indexes)', new_id);
    execute format('alter table postrider.message attach partition postrider.message_%s for values in (%s)', new_id, new_id);
    insert into postrider.message_segment (id) values (new_id);
    return new_id;
end
$$;
