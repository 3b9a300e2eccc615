-- What is parked is never due, and what is never due says why: as in every other work table. Rows that somebody changed by hand
-- are made to say so first.
update exports.export_job_input set parked = 'parked by hand' where parked is null and next_retry_at = 'infinity';
update exports.export_job_input set parked = null where parked is not null and next_retry_at < 'infinity';
alter table exports.export_job_input add constraint export_job_input_parked_is_never_due
    check ((parked is null) = (next_retry_at < 'infinity'));
