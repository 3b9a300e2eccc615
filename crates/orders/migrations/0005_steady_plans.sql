-- Rows like those to come, one to a page, leave statistics and room behind, so that plans stay good: see the engine's
-- migration 0306.

alter table orders.outbox_orders set (vacuum_truncate = off);
insert into orders.outbox_orders (id, idempotency_key, order_request_json, request_digest, last_error_msg) overriding system value
select -n, 'first statistics ' || n, '{}', repeat('0', 64), (select string_agg(md5(random()::text), '') from generate_series(1, 58))
from generate_series(1, 120) n;
analyze orders.outbox_orders;
delete from orders.outbox_orders where id < 0;
