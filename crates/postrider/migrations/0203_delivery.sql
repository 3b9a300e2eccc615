-- One row per message and group: the work table of the Postgres transport's consumers. Slim; the body is in the log.
-- Shape and fillfactor as in postrider.outbox.
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
    -- Group, topic and the message's key, with spaces between (neither group nor topic can contain one).
    ordering_key   text,
    parked         text,
    error_code     text,
    error_category text,
    error_message  text,

    constraint delivery_leased_has_lease
        check ((state = 'leased') = (lease_until is not null)
           and (lease_until is null) = (fence is null)
           and (lease_until is null) = (lease_owner is null)),
    constraint delivery_finished_has_time check ((state in ('done', 'dead')) = (finished_at is not null)),
    constraint delivery_dead_has_reason   check (state <> 'dead' or error_code is not null),
    constraint delivery_waiting_not_fresh check (state <> 'ready' or attempts = 0),
    constraint delivery_parked_is_never_due check ((parked is not null) = (due = 'infinity')),
    constraint delivery_counts check (attempts >= 0 and losses >= 0)
) with (fillfactor = 45, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);

-- The claim. It begins with the group, so that one group's backlog is not in another's way.
create index delivery_claim on postrider.delivery (consumer_group, due, id) where finished_at is null;

-- Who is next in an ordering key.
create index delivery_order on postrider.delivery (ordering_key, id)
    where ordering_key is not null and finished_at is null;

-- Dead letters, newest first.
create index delivery_dead on postrider.delivery (finished_at, id) where finished_at is not null;

-- The lock of an ordering key; the same for all groups, so that a publisher takes one per message and not one per delivery.
create function postrider.delivery_lock(topic_and_key text) returns bigint
    language sql immutable parallel safe
    return hashtextextended(topic_and_key, 7311);

-- The heads of these keys are gone: make the next of each due. Never waits; see postrider.promote.
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

-- Keys whose deliveries all wait behind a head that is no longer there: a crash before promoting.
create function postrider.stranded_deliveries(most integer) returns text[]
    language sql stable
    return array(
        select d.ordering_key from postrider.delivery d
        where d.ordering_key is not null and d.finished_at is null
        group by d.ordering_key
        having bool_and(d.parked is not distinct from 'behind')
        limit most);
