-- What a dead letter has in common with others: its failure's code and message without the particulars. It is written when
-- the item is given up and taken away when it begins anew, so no claim and no success ever touches it or its index.

alter table orders.outbox_orders add column cause text collate "C";

update orders.outbox_orders set cause = left(last_error_code || ': ' || regexp_replace(coalesce(last_error_msg, ''), '[0-9]+', '<n>', 'g'), 200)
where finished_at is not null and status = 'aborted';

alter table orders.outbox_orders drop constraint outbox_orders_aborted_has_reason;
alter table orders.outbox_orders add constraint outbox_orders_aborted_has_reason
    check (status <> 'aborted' or num_nulls(last_error_code, cause) = 0);

create index outbox_orders_cause on orders.outbox_orders (cause, finished_at, id) where cause is not null;

-- Finished rows stay here: those that are dead, newest first, without the others.
create index outbox_orders_dead on orders.outbox_orders (finished_at, id) where cause is not null;

-- Before aborted orders are sent anew: the ledger must say that they are accepted again, and one whose time is over is
-- not sent any more. Returns those that may be redriven.
create function orders.reopen(ids bigint[]) returns bigint[] language sql as $$
    with fit as (
        select o.id, o.idempotency_key from orders.outbox_orders o
        where o.id = any(ids) and o.status = 'aborted' and coalesce(o.expires_at > clock_timestamp(), true)
        order by o.id for update
    ), opened as (
        update postrider.ledger l set state = 'accepted', result = null, finished_at = null
        from fit where l.scope = 'orders' and l.key = fit.idempotency_key and l.state = 'failed'
        returning l.key
    )
    select coalesce(array_agg(f.id), '{}') from fit f join opened p on p.key = f.idempotency_key
$$;
