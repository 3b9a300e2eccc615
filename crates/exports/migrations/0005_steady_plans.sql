-- Rows like those to come, one to a page, leave statistics and room behind, so that plans stay good: see the engine's
-- migration 0306.

alter table exports.export_job_input set (vacuum_truncate = off);
insert into exports.export_job (job_id, number, job_key, total_inputs)
values ('00000000-0000-0000-0000-000000000000', -1, 'first statistics', 120);
insert into exports.export_job_input (id, input_id, job_id, index_key, effective_date, asof_indicator, error_message)
overriding system value
select -n, gen_random_uuid(), '00000000-0000-0000-0000-000000000000', 'K' || n, 20240202, 'CLS', (select string_agg(md5(random()::text), '') from generate_series(1, 58))
from generate_series(1, 120) n;
analyze exports.export_job_input;
delete from exports.export_job_input where id < 0;
delete from exports.export_job where number = -1;
