-- Orders that were accepted and wait to be sent to the trading broker; and what became of them.
--
-- The names are those of the pattern that people already query. Beside them stand the columns that a lease needs: when
-- a row may be claimed (due), until when and under which token it is held, and how often a worker was lost over it.
-- There is no index on status or locked_at: a claim changes both, and would have to write each such index anew.

create table orders.outbox_orders (
    id                 bigint generated always as identity primary key,
    created_at         timestamptz not null default now(),
    updated_at         timestamptz not null default now(),
    due                timestamptz not null default now(),
    -- Set by finishing alone; tells unfinished rows apart in every index.
    finished_at        timestamptz,
    locked_until       timestamptz,
    fence              bigint,
    status             text        not null default 'pending'
                       check (status in ('pending', 'sending', 'succeeded', 'failed', 'aborted')),
    attempts           integer     not null default 0,
    losses             integer     not null default 0,
    locked_by          text,
    locked_at          timestamptz,
    -- Set before the first call that might reach the broker, and cleared when it is certain that none did: a row
    -- without it was never sent, a row with it is looked up at the broker before it is sent again.
    sent_at            timestamptz,
    idempotency_key    text collate "C" not null unique check (octet_length(idempotency_key) between 1 and 255),
    order_request_json jsonb       not null,
    request_digest     text        not null check (octet_length(request_digest) = 64),
    expires_at         timestamptz,
    last_error_code    text,
    last_error_category text,
    last_error_msg     text,

    constraint outbox_orders_sending_has_lease
        check (num_nonnulls(locked_until, fence, locked_by) = case when status = 'sending' then 3 else 0 end),
    constraint outbox_orders_finished_has_time
        check ((finished_at is not null) = (status in ('succeeded', 'aborted'))),
    constraint outbox_orders_aborted_has_reason check (status <> 'aborted' or last_error_code is not null),
    constraint outbox_orders_failed_not_fresh   check (status <> 'pending' or attempts = 0)
) with (fillfactor = 45, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);

-- The claim: due first, oldest first.
create index outbox_orders_claim on orders.outbox_orders (due, id) where finished_at is null;

-- Dead letters and cleaning, by age.
create index outbox_orders_finished on orders.outbox_orders (finished_at, id) where finished_at is not null;

-- Cleaning of what was sent and has expired since.
create index outbox_orders_expired on orders.outbox_orders (expires_at)
    where finished_at is not null and expires_at is not null;

-- The two columns of the pattern that the lease has no use for, kept true for those who query them.
create function orders.touch_outbox_order() returns trigger language plpgsql as $$
begin
    new.updated_at := clock_timestamp();
    if new.fence is distinct from old.fence then
        new.locked_at := case when new.fence is not null then clock_timestamp() end;
    end if;
    return new;
end
$$;

create trigger touch before update on orders.outbox_orders
    for each row execute function orders.touch_outbox_order();

-- The ledger under the pattern's name. It is the engine's own, and is never cleaned: a forgotten key could be sent twice.
create view orders.idempo_ledger as
select key as idempotency_key, encode(digest, 'hex') as request_digest, state as status, result,
       created_at, coalesce(finished_at, created_at) as updated_at
from postrider.ledger where scope = 'orders';

comment on table orders.outbox_orders is 'One row per accepted order until it is cleaned away; orders.idempo_ledger remembers it for ever.';
