-- As before, but the ledger's entries are locked before the orders' rows, as everywhere: a cancel of the same order then waits
-- for its turn and can't run into a deadlock. (A row is locked only once it is joined with its entry, which is locked by then.)
create or replace function orders.reopen(ids bigint[]) returns bigint[] language sql as $$
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
