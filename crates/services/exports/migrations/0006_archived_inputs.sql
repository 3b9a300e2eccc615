-- A failed job whose dead inputs were archived has nothing left to redrive but what was parked with them: opening a job
-- again is a deed of its own, not only what a redriven input brings about.

create function exports.open_again(job uuid) returns boolean language plpgsql as $$
begin
    update exports.export_job set status = 'RUNNING', started_at = coalesce(started_at, now()),
                                  completed_at = null, error_message = null
    where job_id = job and status = 'FAILED';
    if not found then
        return false;
    end if;
    update exports.export_job_input set next_retry_at = now(), parked = null
    where job_id = job and finished_at is null and lease_until is null and next_retry_at > now();
    return true;
end
$$;

-- As before; and an input that begins anew does so without the error of its former life, which the journal of attempts has.
create or replace function exports.reopen_export_job() returns trigger language plpgsql as $$
begin
    update exports.export_job_input set error_code = null, error_category = null, error_message = null
    where input_id = new.input_id and error_code is not null;
    perform exports.open_again(new.job_id);
    return null;
end
$$;

-- An error that was overcome is not today's.
update exports.export_job_input set error_code = null, error_category = null, error_message = null
where status = 'SUCCEEDED' and error_code is not null;
