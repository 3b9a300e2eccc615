-- What a dead letter has in common with others: its failure's code and message without the particulars. It is written when
-- the item is given up and taken away when it begins anew, so no claim and no success ever touches it or its index.

alter table exports.export_job_input add column cause text collate "C";

update exports.export_job_input set cause = left(error_code || ': ' || regexp_replace(coalesce(error_message, ''), '[0-9]+', '<n>', 'g'), 200)
where finished_at is not null and status = 'DLQ';

alter table exports.export_job_input drop constraint export_job_input_dlq_has_reason;
alter table exports.export_job_input add constraint export_job_input_dlq_has_reason
    check (status <> 'DLQ' or num_nulls(error_code, cause) = 0);

create index export_job_input_cause on exports.export_job_input (cause, finished_at, id) where cause is not null;

-- Finished rows stay here: those that are dead, newest first, without the others.
create index export_job_input_dead on exports.export_job_input (finished_at, id) where cause is not null;
