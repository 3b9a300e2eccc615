-- Orders of one account, or of one symbol, one after the other, for those who configure it (orders.ordering).
--
-- The oldest unfinished order of a key is its head; the others are parked behind it and due at infinity. When the head is
-- finished, the next one is made due. Whoever adds to a key holds its lock until the commit, so that no order is parked
-- behind a head that has just gone.

alter table orders.outbox_orders
    add column ordering_key text,
    add column parked       text,
    add constraint outbox_orders_parked_is_never_due check ((parked is not null) = (due = 'infinity'));

-- Who is next in an ordering key.
create index outbox_orders_order on orders.outbox_orders (ordering_key, id)
    where ordering_key is not null and finished_at is null;

-- Two keys that share a lock merely wait for each other.
create function orders.ordering_lock(key text) returns bigint
    language sql immutable parallel safe
    return hashtextextended(key, 7311);

-- The heads of these keys are gone: make the next of each due. Never waits; returns the keys to try again later.
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

-- Keys whose orders all wait behind a head that is no longer there.
create function orders.stranded_keys(most integer) returns text[]
    language sql stable
    return array(
        select o.ordering_key from orders.outbox_orders o
        where o.ordering_key is not null and o.finished_at is null
        group by o.ordering_key
        having bool_and(o.parked is not distinct from 'behind')
        limit most);
