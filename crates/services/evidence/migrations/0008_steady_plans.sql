-- What rows that wait look like, for a server that has never looked: see the engine's migration 0306.

insert into evidence.attach_task (id, event_id, file_job_id, file_job_row_id, is_retry) overriding system value
select -n, gen_random_uuid(), gen_random_uuid(), gen_random_uuid(), false from generate_series(1, 300) n;
analyze evidence.attach_task;
delete from evidence.attach_task where id < 0;
