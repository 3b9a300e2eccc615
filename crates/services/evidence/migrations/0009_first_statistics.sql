-- What rows and their artifacts look like, for a server that has never looked: it would expect two hundred rows in all, however
-- many there are, and read every artifact of every job to find those of a few. See the engine's migration 0306.

insert into evidence.file_job (id, merchant_id, source, row_count, artifact_count)
values ('00000000-0000-0000-0000-000000000000', 'first statistics', 'json', 300, 600);
insert into evidence.file_job_row (id, file_job_id, row_number, case_id, evidence_count)
select gen_random_uuid(), j.id, n, gen_random_uuid(), 2
from evidence.file_job j, generate_series(1, 300) n where j.id = '00000000-0000-0000-0000-000000000000';
insert into evidence.file_job_artifact (id, file_job_id, file_job_row_id, case_id, artifact_number, file_name, s3_key, max_retries)
select gen_random_uuid(), r.file_job_id, r.id, r.case_id, n, 'f' || n, 'k' || n, 0
from evidence.file_job_row r, generate_series(1, 2) n where r.file_job_id = '00000000-0000-0000-0000-000000000000';
analyze evidence.file_job_row, evidence.file_job_artifact;
delete from evidence.file_job_artifact where file_job_id = '00000000-0000-0000-0000-000000000000';
delete from evidence.file_job_row where file_job_id = '00000000-0000-0000-0000-000000000000';
delete from evidence.file_job where id = '00000000-0000-0000-0000-000000000000';
