-- Rows like those to come, one or two to a page, leave statistics and room behind, so that plans stay good whatever the server
-- knows of these tables and however small they were when the plans were made: see the engine's migration 0306.

alter table evidence.attach_task set (vacuum_truncate = off);
insert into evidence.attach_task (id, event_id, file_job_id, file_job_row_id, is_retry, error_message) overriding system value
select -n, gen_random_uuid(), gen_random_uuid(), gen_random_uuid(), false, (select string_agg(md5(random()::text), '') from generate_series(1, 58))
from generate_series(1, 120) n;
analyze evidence.attach_task;
delete from evidence.attach_task where id < 0;

alter table evidence.file_job_row set (vacuum_truncate = off);
alter table evidence.file_job_artifact set (vacuum_truncate = off);
insert into evidence.file_job (id, merchant_id, source, row_count, artifact_count)
values ('00000000-0000-0000-0000-000000000000', 'first.statistics', 'json', 240, 720);
insert into evidence.file_job_row (id, file_job_id, row_number, case_id, evidence_count, reference)
select gen_random_uuid(), '00000000-0000-0000-0000-000000000000', n, gen_random_uuid(), 3, (select string_agg(md5(random()::text), '') from generate_series(1, 58))
from generate_series(1, 240) n;
insert into evidence.file_job_artifact (id, file_job_id, file_job_row_id, case_id, artifact_number, file_name, s3_key, max_retries)
select gen_random_uuid(), r.file_job_id, r.id, r.case_id, n, r.reference, 'first.statistics', 0
from evidence.file_job_row r, generate_series(1, 3) n where r.file_job_id = '00000000-0000-0000-0000-000000000000';
analyze evidence.file_job_row;
analyze evidence.file_job_artifact;
delete from evidence.file_job_artifact where file_job_id = '00000000-0000-0000-0000-000000000000';
delete from evidence.file_job_row where file_job_id = '00000000-0000-0000-0000-000000000000';
delete from evidence.file_job where id = '00000000-0000-0000-0000-000000000000';
