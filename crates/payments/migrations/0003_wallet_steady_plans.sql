-- Rows like those to come, one to a page, leave statistics and room behind, so that plans stay good: see the engine's
-- migration 0306.

alter table wallet.outbox set (vacuum_truncate = off);
insert into wallet.outbox (id, uuid, outcome, last_error) overriding system value
select -n, gen_random_uuid(), 'SUCCEED', (select string_agg(md5(random()::text), '') from generate_series(1, 58))
from generate_series(1, 120) n;
analyze wallet.outbox;
delete from wallet.outbox where id < 0;
