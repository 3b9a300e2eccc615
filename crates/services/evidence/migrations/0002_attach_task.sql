-- Attach events that arrived: one row per event until its artifacts are handled. This is where a worker's lease lives;
-- an artifact that is being attached names the task that holds it.
create table evidence.attach_task (
    id              bigint generated always as identity primary key,
    due             timestamptz not null default now(),
    created_at      timestamptz not null default now(),
    finished_at     timestamptz,
    lease_until     timestamptz,
    fence           bigint,
    state           postrider.work_state not null default 'ready',
    attempts        smallint    not null default 0,
    losses          smallint    not null default 0,
    lease_owner     text,
    event_id        uuid        not null,
    file_job_id     uuid        not null,
    file_job_row_id uuid        not null,
    is_retry        boolean     not null,
    parked          text,
    error_code      text,
    error_category  text,
    error_message   text,

    constraint attach_task_leased_has_lease
        check (num_nonnulls(lease_until, fence, lease_owner) = case when state = 'leased' then 3 else 0 end),
    constraint attach_task_finished_has_time check ((state in ('done', 'dead')) = (finished_at is not null)),
    constraint attach_task_dead_has_reason   check (state <> 'dead' or error_code is not null),
    constraint attach_task_waiting_not_fresh check (state <> 'ready' or attempts = 0),
    constraint attach_task_parked_is_never_due check ((parked is not null) = (due = 'infinity'))
) with (fillfactor = 45, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);

-- The claim: due first, oldest first.
create index attach_task_claim on evidence.attach_task (due, id) where finished_at is null;

-- Is somebody still going to handle this row?
create index attach_task_row on evidence.attach_task (file_job_row_id) where finished_at is null;

-- Dead letters, by age.
create index attach_task_dead on evidence.attach_task (finished_at, id) where finished_at is not null;
