-- What rows that wait look like, for a server that has never looked: see the engine's migration 0306.

insert into orders.outbox_orders (id, idempotency_key, order_request_json, request_digest) overriding system value
select -n, 'first statistics ' || n, '{}', repeat('0', 64) from generate_series(1, 300) n;
analyze orders.outbox_orders;
delete from orders.outbox_orders where id < 0;
