-- The built-in paper broker's book: what it has accepted, by client order id. It is the broker's memory, not ours: it is
-- written in transactions of its own, as if by another company.
create table orders.paper_orders (
    broker_order_id bigint generated always as identity primary key,
    client_order_id text        not null unique,
    request         jsonb       not null,
    received_at     timestamptz not null default clock_timestamp()
);
