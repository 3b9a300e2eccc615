-- Jobs, their inputs, and the latest file of each key.
--
-- Table and column names are those of the design, which existing queries use. export_job_input is a work table: it also
-- has the columns that a lease needs. There is no index on status, lease_until or lease_owner, so that a claim updates
-- no index.

create sequence exports.export_job_number;

create table exports.export_job (
    job_id        uuid        primary key,
    -- Position in listings, and the number in the key.
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

-- Open jobs, which the finalizer scans.
create index ix_export_job_open on exports.export_job (job_id) where completed_at is null;

create table exports.export_job_input (
    -- Finishing an input adds an entry to each of its indexes: pages with room for it needn't be split meanwhile.
    id             bigint      generated always as identity unique with (fillfactor = 50),
    input_id       uuid        primary key with (fillfactor = 50),
    job_id         uuid        not null references exports.export_job (job_id),
    -- When it may be claimed: at once, or when the next attempt is due; infinity while its job is closed.
    next_retry_at  timestamptz not null default now(),
    -- Set only when the input is finished; partial indexes use it to find unfinished rows.
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
    -- What a dead letter has in common with others: the error code and message without specifics. Null unless it is dead, so
    -- that no claim and no success touches its indexes.
    cause          text collate "C",

    unique (job_id, index_key, effective_date, asof_indicator) with (fillfactor = 50),
    constraint export_job_input_running_has_lease
        check (num_nonnulls(lease_until, fence, lease_owner) = case when status = 'RUNNING' then 3 else 0 end),
    constraint export_job_input_finished_has_time
        check ((finished_at is not null) = (status in ('SUCCEEDED', 'DLQ'))),
    constraint export_job_input_succeeded_has_file check (status <> 'SUCCEEDED' or s3_path is not null),
    constraint export_job_input_dlq_has_reason     check (status <> 'DLQ' or num_nulls(error_code, cause) = 0),
    constraint export_job_input_pending_is_fresh   check (status <> 'PENDING' or attempt_count = 0),
    constraint export_job_input_parked_is_never_due check ((parked is null) = (next_retry_at < 'infinity'))
) with (fillfactor = 45, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);

-- Claims: due first, oldest first.
create index export_job_input_claim on exports.export_job_input (next_retry_at, id) where finished_at is null;

-- Whether a job has unfinished inputs, and whether any of them may still run. next_retry_at is only included: as a key
-- column it would make this index attractive for claims while the table has no statistics, and every claim would read and
-- sort everything that waits.
create index export_job_input_open on exports.export_job_input (job_id) include (next_retry_at) where finished_at is null;

-- Recently finished inputs. BRIN, because inputs finish roughly in insertion order, and a B-tree entry per input would be
-- a fifth of the cost of finishing it.
create index export_job_input_finished on exports.export_job_input
    using brin (finished_at) with (pages_per_range = 32, autosummarize = on);

-- Dead letters by cause and by age.
create index export_job_input_cause on exports.export_job_input (cause, finished_at, id) where cause is not null;
create index export_job_input_dead on exports.export_job_input (finished_at, id) where cause is not null;

-- A job's inputs in the order of the request.
create index export_job_input_job on exports.export_job_input (job_id, id) with (fillfactor = 50);

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

-- File locks: the input that generates a file holds the lock as long as its lease under this fence is valid.
create table exports.export_generation (
    index_key      text    not null,
    effective_date integer not null,
    asof_indicator text    not null,
    input_id       bigint  not null,
    fence          bigint  not null,
    primary key (index_key, effective_date, asof_indicator)
);

-- Volatile, so that it takes a snapshot of its own: a statement that waited for another one must see its effects.
create function exports.generation_is_held(input bigint, token bigint) returns boolean
language plpgsql volatile as $$
begin
    return exists (select 1 from exports.export_job_input i
                   where i.id = input and i.fence = token and i.lease_until > clock_timestamp());
end
$$;

-- Reopens a failed job and resumes its parked inputs.
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

-- A redriven input reopens its job, whichever way it is redriven, and loses its last error; the attempt log keeps it.
create function exports.reopen_export_job() returns trigger language plpgsql as $$
begin
    update exports.export_job_input set error_code = null, error_category = null, error_message = null
    where input_id = new.input_id and error_code is not null;
    perform exports.open_again(new.job_id);
    return null;
end
$$;

create trigger reopen after update on exports.export_job_input for each row
    when (old.finished_at is not null and new.finished_at is null)
    execute function exports.reopen_export_job();

comment on table exports.export_job_input is 'One row per input of a job, kept when it is finished; a row with status DLQ is a dead letter.';

-- The bundled sample source: constituents of three fictitious indexes for every day of 2023 and 2024, as of the close and
-- the adjusted close. Deterministic; there are no rows for any other key.
create function exports.sample_constituents(index_key text, effective_date date, asof_indicator text)
returns table (index_key text, effective_date date, asof_indicator text, rank integer, constituent text,
               shares bigint, price numeric(12, 4), currency text)
language sql immutable parallel safe as $$
    select $1, $2, $3, n, $1 || '-' || lpad(n::text, 4, '0'),
           1000 + (n * 7919 + day * 31) % 90000,
           ((500 + (n * 104729 + day * 613 + key * 17) % 99000) * case $3 when 'CLS' then 100 else 97 end)::numeric(12, 4) / 10000,
           (array['EUR', 'USD', 'GBP', 'JPY'])[1 + n % 4]
    from (select ascii($1) as key, $2 - date '2023-01-01' as day) asked,
         generate_series(1, 100 + asked.key % 20) n
    where $1 in ('ABC', 'DEF', 'GHI') and $2 between date '2023-01-01' and date '2024-12-31' and $3 in ('CLS', 'ADJCLS')
$$;

-- Initial statistics: without any, the planner chooses bad plans for the first large job.
insert into exports.export_job (job_id, number, job_key, total_inputs)
values ('00000000-0000-0000-0000-000000000000', -1, 'first statistics', 300);
insert into exports.export_job_input (id, input_id, job_id, index_key, effective_date, asof_indicator) overriding system value
select -n, gen_random_uuid(), '00000000-0000-0000-0000-000000000000', 'K' || n, 20240202, 'CLS' from generate_series(1, 300) n;
analyze exports.export_job_input;
delete from exports.export_job_input where id < 0;
delete from exports.export_job where number = -1;
