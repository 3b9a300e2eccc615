-- Rows like those to come, one to a page, leave statistics and room behind, so that plans stay good: see the engine's
-- migration 0306.

alter table payments.outbox set (vacuum_truncate = off);
insert into payments.outbox (id, uuid, payload, last_error) overriding system value
select -n, gen_random_uuid(), '{}', (select string_agg(md5(random()::text), '') from generate_series(1, 58))
from generate_series(1, 120) n;
analyze payments.outbox;
delete from payments.outbox where id < 0;
