-- Schema `orders`: accepted orders on their way to the trading broker, and what became of them.
--
-- Table and column names are those of the pattern that people already query. In addition there are the columns that a
-- lease needs: when a row may be claimed (due), until when and under which fence it is leased, and how often a worker was
-- lost over it. There is no index on status or locked_at: a claim changes both and would have to update each such index.

create table orders.outbox_orders (
    id                 bigint generated always as identity primary key,
    created_at         timestamptz not null default now(),
    updated_at         timestamptz not null default now(),
    due                timestamptz not null default now(),
    -- Set only when the order finishes; every partial index distinguishes unfinished rows by it.
    finished_at        timestamptz,
    locked_until       timestamptz,
    fence              bigint,
    status             text        not null default 'pending'
                       check (status in ('pending', 'sending', 'succeeded', 'failed', 'aborted')),
    attempts           integer     not null default 0,
    losses             integer     not null default 0,
    locked_by          text,
    locked_at          timestamptz,
    -- Set before the first call that might reach the broker, cleared when certainly none did. A row without it was never
    -- sent; for a row with it the broker is queried before the order is sent again.
    sent_at            timestamptz,
    idempotency_key    text collate "C" not null unique check (octet_length(idempotency_key) between 1 and 255),
    order_request_json jsonb       not null,
    request_digest     text        not null check (octet_length(request_digest) = 64),
    expires_at         timestamptz,
    last_error_code    text,
    last_error_category text,
    last_error_msg     text,
    -- Only with orders.ordering: the key whose orders are sent one after another, and why the row is not due.
    ordering_key       text,
    parked             text,
    -- Dead letters only: code and message without the particulars, to group them. Written when an order is aborted and
    -- cleared by a redrive, so no claim and no success touches it or its indexes.
    cause              text collate "C",

    constraint outbox_orders_sending_has_lease
        check (num_nonnulls(locked_until, fence, locked_by) = case when status = 'sending' then 3 else 0 end),
    constraint outbox_orders_finished_has_time
        check ((finished_at is not null) = (status in ('succeeded', 'aborted'))),
    -- A cancelled order is not a dead letter, because nobody has to decide about it: it has no cause. (The code alone is
    -- not enough: a broker may reject an order with the same one.)
    constraint outbox_orders_aborted_has_reason
        check (status <> 'aborted' or (last_error_code is not null and (cause is not null or last_error_code = 'CANCELLED'))),
    constraint outbox_orders_failed_not_fresh   check (status <> 'pending' or attempts = 0),
    constraint outbox_orders_parked_is_never_due check ((parked is not null) = (due = 'infinity'))
) with (fillfactor = 45, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);

comment on table orders.outbox_orders is 'One row per accepted order until it is cleaned up; orders.idempo_ledger keeps it permanently.';

-- The claim: due first, oldest first.
create index outbox_orders_claim on orders.outbox_orders (due, id) where finished_at is null;

-- Clean-up, by age.
create index outbox_orders_finished on orders.outbox_orders (finished_at, id) where finished_at is not null;

-- Clean-up of sent orders that have expired since.
create index outbox_orders_expired on orders.outbox_orders (expires_at)
    where finished_at is not null and expires_at is not null;

-- The next order of an ordering key.
create index outbox_orders_order on orders.outbox_orders (ordering_key, id)
    where ordering_key is not null and finished_at is null;

-- Dead letters: by cause, and newest first.
create index outbox_orders_cause on orders.outbox_orders (cause, finished_at, id) where cause is not null;
create index outbox_orders_dead on orders.outbox_orders (finished_at, id) where cause is not null;

-- Keeps the two columns that the lease doesn't need correct for those who query them, and clears an error that was
-- overcome or that precedes a redrive: the attempt log has it.
create function orders.touch_outbox_order() returns trigger language plpgsql as $$
begin
    new.updated_at := clock_timestamp();
    if new.fence is distinct from old.fence then
        new.locked_at := case when new.fence is not null then clock_timestamp() end;
    end if;
    if new.status = 'succeeded' or (old.finished_at is not null and new.finished_at is null) then
        new.last_error_code := null;
        new.last_error_category := null;
        new.last_error_msg := null;
    end if;
    return new;
end
$$;

create trigger touch before update on orders.outbox_orders
    for each row execute function orders.touch_outbox_order();

-- The ledger under the pattern's name. It is the library's own and is never cleaned: a forgotten key could be sent twice.
create view orders.idempo_ledger as
select key as idempotency_key, encode(digest, 'hex') as request_digest, state as status, result,
       created_at, coalesce(finished_at, created_at) as updated_at
from postrider.ledger where scope = 'orders';

-- The orders of the built-in paper broker, by client order id. They stand for another company's data, so they are written
-- in transactions of their own.
create table orders.paper_orders (
    broker_order_id bigint generated always as identity primary key,
    client_order_id text        not null unique,
    request         jsonb       not null,
    received_at     timestamptz not null default clock_timestamp()
);

-- Ordering: the oldest unfinished order of a key is its head; the others are parked behind it and due at infinity. When
-- the head finishes, the next one becomes due. An insert holds the key's lock until it commits, so no order is parked
-- behind a head that has just finished.

-- Two keys that share a lock merely wait for each other.
create function orders.ordering_lock(key text) returns bigint
    language sql immutable parallel safe
    return hashtextextended(key, 7311);

-- Makes the next order of each of these keys due, if its head has finished. Never waits; returns the keys to retry later.
create function orders.promote(keys text[]) returns text[] language plpgsql as $$
declare
    candidate text;
    busy      text[] := '{}';
begin
    for candidate in select distinct k from unnest(keys) k order by 1 loop
        if not pg_try_advisory_xact_lock(orders.ordering_lock(candidate)) then
            busy := busy || candidate;
            continue;
        end if;
        update orders.outbox_orders o set due = now(), parked = null
        where o.id = (
                select n.id from orders.outbox_orders n
                where n.ordering_key = candidate and n.finished_at is null and n.parked = 'behind'
                order by n.id limit 1)
          and not exists (
                select from orders.outbox_orders h
                where h.ordering_key = candidate and h.finished_at is null and h.parked is distinct from 'behind');
    end loop;
    return busy;
end
$$;

-- Keys whose orders are all parked behind a head that no longer exists.
create function orders.stranded_keys(most integer) returns text[]
    language sql stable
    return array(
        select o.ordering_key from orders.outbox_orders o
        where o.ordering_key is not null and o.finished_at is null
        group by o.ordering_key
        having bool_and(o.parked is not distinct from 'behind')
        limit most);

-- Reopens the ledger entries of aborted orders before a redrive; returns the orders that may be redriven. Expired and
-- cancelled orders may not. Ledger entries are locked before rows, as everywhere, so a concurrent cancel waits instead of
-- deadlocking. (A row is locked only after it is joined with its entry, which is locked by then.)
create function orders.reopen(ids bigint[]) returns bigint[] language sql as $$
    with entry as materialized (
        select l.key from postrider.ledger l
        where l.scope = 'orders' and l.state = 'failed'
          and l.key in (select o.idempotency_key from orders.outbox_orders o where o.id = any(ids))
        order by l.key for update
    ), fit as materialized (
        select o.id, o.idempotency_key from entry e join orders.outbox_orders o on o.idempotency_key = e.key
        where o.id = any(ids) and o.status = 'aborted' and o.cause is not null
          and coalesce(o.expires_at > clock_timestamp(), true)
        for update of o
    ), opened as (
        update postrider.ledger l set state = 'accepted', result = null, finished_at = null
        from fit where l.scope = 'orders' and l.key = fit.idempotency_key and l.state = 'failed'
        returning l.key
    )
    select coalesce(array_agg(f.id), '{}') from fit f join opened p on p.key = f.idempotency_key
$$;

-- Initial statistics: the planner should know unfinished rows before the first ANALYZE, or it picks a sequential scan for
-- the claim.
insert into orders.outbox_orders (id, idempotency_key, order_request_json, request_digest) overriding system value
select -n, 'first statistics ' || n, '{}', repeat('0', 64) from generate_series(1, 300) n;
analyze orders.outbox_orders;
delete from orders.outbox_orders where id < 0;
