-- An order that was cancelled is finished for good: nobody has to decide about it, so it is no dead letter. It is told from
-- other aborted orders by having no cause. (Its code alone does not tell: a broker may reject an order with the same one.)

alter table orders.outbox_orders drop constraint outbox_orders_aborted_has_reason;
alter table orders.outbox_orders add constraint outbox_orders_aborted_has_reason
    check (status <> 'aborted' or (last_error_code is not null and (cause is not null or last_error_code = 'CANCELLED')));

update orders.outbox_orders o set cause = null
from postrider.ledger l
where o.status = 'aborted' and o.last_error_code = 'CANCELLED'
  and l.scope = 'orders' and l.key = o.idempotency_key and l.result ->> 'message' = 'cancelled before it was sent';

-- As before, and what was cancelled stays so, whoever asks.
create or replace function orders.reopen(ids bigint[]) returns bigint[] language sql as $$
    with fit as (
        select o.id, o.idempotency_key from orders.outbox_orders o
        where o.id = any(ids) and o.status = 'aborted' and o.cause is not null
          and coalesce(o.expires_at > clock_timestamp(), true)
        order by o.id for update
    ), opened as (
        update postrider.ledger l set state = 'accepted', result = null, finished_at = null
        from fit where l.scope = 'orders' and l.key = fit.idempotency_key and l.state = 'failed'
        returning l.key
    )
    select coalesce(array_agg(f.id), '{}') from fit f join opened p on p.key = f.idempotency_key
$$;

-- As before, and an error that was overcome, or that an order which begins anew had in its former life, is not shown as if it
-- were today's: the journal of attempts has it.
create or replace function orders.touch_outbox_order() returns trigger language plpgsql as $$
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

update orders.outbox_orders set last_error_code = null, last_error_category = null, last_error_msg = null
where status = 'succeeded' and last_error_code is not null;
