-- Jobs, their inputs, and which file is the latest of each key.
--
-- The names are those of the design that people already query. export_job_input is a work table: beside the names of the
-- design stand the columns that a lease needs. There is no index on status, lease_until or lease_owner: a claim changes
-- them, and would have to write each such index anew.

create sequence exports.export_job_number;

create table exports.export_job (
    job_id        uuid        primary key,
    -- The place in the listing, and the number in the key.
    number        bigint      not null unique,
    job_key       text        not null unique,
    status        text        not null default 'SUBMITTED'
                  check (status in ('SUBMITTED', 'RUNNING', 'COMPLETED', 'FAILED', 'CANCELLED')),
    requested_at  timestamptz not null default now(),
    started_at    timestamptz,
    completed_at  timestamptz,
    total_inputs  integer     not null check (total_inputs > 0),
    error_message text,

    constraint export_job_closed_has_time
        check ((completed_at is not null) = (status in ('COMPLETED', 'FAILED', 'CANCELLED'))),
    constraint export_job_running_was_started check (status <> 'RUNNING' or started_at is not null),
    constraint export_job_submitted_was_not   check (status <> 'SUBMITTED' or started_at is null),
    constraint export_job_failed_has_reason   check (status <> 'FAILED' or error_message is not null)
);

create index ix_export_job_status on exports.export_job (status, number);

-- What the finalizer looks at.
create index ix_export_job_open on exports.export_job (job_id) where completed_at is null;

create table exports.export_job_input (
    id             bigint      generated always as identity unique,
    input_id       uuid        primary key,
    job_id         uuid        not null references exports.export_job (job_id),
    -- When it may be claimed: from the beginning, or when the next attempt is due; infinity while its job is closed.
    next_retry_at  timestamptz not null default now(),
    -- Set by finishing alone; tells unfinished rows apart in every index.
    finished_at    timestamptz,
    lease_until    timestamptz,
    fence          bigint,
    effective_date integer     not null,
    attempt_count  integer     not null default 0,
    losses         integer     not null default 0,
    is_reused      boolean     not null default false,
    status         text        not null default 'PENDING'
                   check (status in ('PENDING', 'RUNNING', 'SUCCEEDED', 'RETRY_WAIT', 'DLQ')),
    index_key      text        not null,
    asof_indicator text        not null,
    lease_owner    text,
    parked         text,
    s3_path        text,
    error_code     text,
    error_category text,
    error_message  text,

    unique (job_id, index_key, effective_date, asof_indicator),
    constraint export_job_input_running_has_lease
        check (num_nonnulls(lease_until, fence, lease_owner) = case when status = 'RUNNING' then 3 else 0 end),
    constraint export_job_input_finished_has_time
        check ((finished_at is not null) = (status in ('SUCCEEDED', 'DLQ'))),
    constraint export_job_input_succeeded_has_file check (status <> 'SUCCEEDED' or s3_path is not null),
    constraint export_job_input_dlq_has_reason     check (status <> 'DLQ' or error_code is not null),
    constraint export_job_input_pending_is_fresh   check (status <> 'PENDING' or attempt_count = 0)
) with (fillfactor = 45, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);

-- The claim: due first, oldest first.
create index export_job_input_claim on exports.export_job_input (next_retry_at, id) where finished_at is null;

-- Is anything of a job unfinished, and may any of it still run?
create index export_job_input_open on exports.export_job_input (job_id, next_retry_at) where finished_at is null;

-- Dead letters, by age.
create index export_job_input_finished on exports.export_job_input (finished_at, id) where finished_at is not null;

-- The job's inputs in the order of the request.
create index export_job_input_job on exports.export_job_input (job_id, id);

-- The latest file of each key.
create table exports.export_artifact (
    artifact_id    uuid        primary key default gen_random_uuid(),
    index_key      text        not null,
    effective_date integer     not null,
    asof_indicator text        not null,
    s3_path        text        not null,
    source_job_id  uuid        not null,
    generated_at   timestamptz not null default now(),
    constraint ux_artifact_key unique (index_key, effective_date, asof_indicator)
) with (fillfactor = 80);

create index ix_artifact_generated_at on exports.export_artifact (generated_at desc);

-- Who is making which file right now: whoever holds the input's lease under this fence. When that lease is over, so is
-- this one, without anybody doing anything.
create table exports.export_generation (
    index_key      text    not null,
    effective_date integer not null,
    asof_indicator text    not null,
    input_id       bigint  not null,
    fence          bigint  not null,
    primary key (index_key, effective_date, asof_indicator)
);

-- Volatile, and thus with eyes of its own: a statement that had to wait for another would not see what that one did.
create function exports.generation_is_held(input bigint, token bigint) returns boolean
language plpgsql volatile as $$
begin
    return exists (select 1 from exports.export_job_input i
                   where i.id = input and i.fence = token and i.lease_until > clock_timestamp());
end
$$;

-- Whatever door a dead input comes back through, its failed job is open again, and what was parked with it may run at once.
create function exports.reopen_export_job() returns trigger language plpgsql as $$
begin
    update exports.export_job set status = 'RUNNING', started_at = coalesce(started_at, now()),
                                  completed_at = null, error_message = null
    where job_id = new.job_id and status = 'FAILED';
    if found then
        update exports.export_job_input set next_retry_at = now(), parked = null
        where job_id = new.job_id and finished_at is null and lease_until is null and next_retry_at > now();
    end if;
    return null;
end
$$;

create trigger reopen after update on exports.export_job_input for each row
    when (old.finished_at is not null and new.finished_at is null)
    execute function exports.reopen_export_job();

comment on table exports.export_job_input is 'One row per input of a job, kept when it is finished; a row with status DLQ is a dead letter.';
