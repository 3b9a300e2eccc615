-- What rows that wait look like, for a server that has never looked: see the engine's migration 0306.

insert into exports.export_job (job_id, number, job_key, total_inputs)
values ('00000000-0000-0000-0000-000000000000', -1, 'first statistics', 300);
insert into exports.export_job_input (id, input_id, job_id, index_key, effective_date, asof_indicator) overriding system value
select -n, gen_random_uuid(), '00000000-0000-0000-0000-000000000000', 'K' || n, 20240202, 'CLS' from generate_series(1, 300) n;
analyze exports.export_job_input;
delete from exports.export_job_input where id < 0;
delete from exports.export_job where number = -1;
