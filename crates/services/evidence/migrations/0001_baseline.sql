-- Jobs, their rows (one dispute case each), the rows' files, and every attempt to attach one.
--
-- Table and column names are those that existing dashboards and queries use. file_job_artifact is the source of truth about a
-- file: a row's counts and status derive from its artifacts, and the job's two notifications from all of them.

-- The category of an error code. Without a code there is no category, and what never failed isn't retryable.
create function evidence.error_category(code text) returns text
    language sql immutable parallel safe
    return case
        when code is null then null
        when code in ('ATTACHMENT_API_TIMEOUT', 'NETWORK_TIMEOUT', '503') then 'NETWORK'
        when code in ('CORRUPTED_FILE', 'INVALID_FORMAT', 'S3_NOT_FOUND') then 'DATA'
        when code in ('401', '403', 'UNAUTHORIZED', 'CASE_NOT_FOUND') then 'AUTH'
        else 'SYSTEM'
    end;

create table evidence.file_job (
    id             uuid        primary key,
    merchant_id    text        not null check (octet_length(merchant_id) between 1 and 200),
    source         text        not null check (source in ('zip', 'json')),
    row_count      integer     not null check (row_count > 0),
    artifact_count integer     not null check (artifact_count > 0),
    created_at     timestamptz not null default now(),
    n1_sent_at     timestamptz,
    n2_sent_at     timestamptz,
    n2_forced      boolean     not null default false,
    -- Set with N2, or when N2 is skipped; the job doesn't change afterwards.
    closed_at      timestamptz,

    constraint file_job_n2_follows_n1   check (n2_sent_at is null or n1_sent_at is not null),
    constraint file_job_n2_closes       check (n2_sent_at is null or closed_at is not null),
    constraint file_job_closed_after_n1 check (closed_at is null or n1_sent_at is not null),
    constraint file_job_forced_has_n2   check (not n2_forced or n2_sent_at is not null)
);

create index file_job_of_merchant on evidence.file_job (merchant_id, id);

-- Open jobs, which may need N1 or N2.
create index file_job_open on evidence.file_job (id) where closed_at is null;

-- N2 by time, for the gauges.
create index file_job_n2 on evidence.file_job (n2_sent_at) where n2_sent_at is not null;

create table evidence.file_job_row (
    id                      uuid        primary key,
    file_job_id             uuid        not null references evidence.file_job,
    row_number              integer     not null check (row_number > 0),
    case_id                 uuid        not null,
    reference               text,
    evidence_count          integer     not null default 0,
    evidence_attached_count integer     not null default 0,
    evidence_failed_count   integer     not null default 0,
    evidence_status         varchar(20) not null default 'PENDING'
                            check (evidence_status in ('PENDING', 'COMPLETED', 'PARTIALLY_FAILED', 'FAILED')),
    evidence_failed_files   jsonb,
    evidence_completed_at   timestamptz,
    -- Number of retry events; part of each event's dedupe key.
    retry_round             integer     not null default 0,
    created_at              timestamptz not null default now(),
    updated_at              timestamptz not null default now(),

    unique (file_job_id, row_number),
    constraint row_counts check (evidence_attached_count >= 0 and evidence_failed_count >= 0
        and evidence_attached_count + evidence_failed_count <= evidence_count),
    constraint row_status_follows check (evidence_status = case
        when evidence_attached_count + evidence_failed_count < evidence_count then 'PENDING'
        when evidence_attached_count = evidence_count then 'COMPLETED'
        when evidence_failed_count = evidence_count then 'FAILED'
        else 'PARTIALLY_FAILED' end),
    constraint row_completed_has_time check ((evidence_completed_at is not null) = (evidence_status = 'COMPLETED'))
) with (fillfactor = 70);

-- N1 is due when no row is pending; a row is pending until all of its artifacts were tried.
create index idx_row_pending on evidence.file_job_row (file_job_id) where evidence_status = 'PENDING';

create table evidence.file_job_artifact (
    id                       uuid        primary key,
    file_job_id              uuid        not null references evidence.file_job,
    file_job_row_id          uuid        not null references evidence.file_job_row,
    case_id                  uuid        not null,
    artifact_number          integer     not null check (artifact_number > 0),
    file_name                text        not null,
    file_type                text,
    file_size_bytes          bigint,
    -- Of the ingested content; null for objects that were in the store already. Checked without a regular expression, which
    -- would cost more.
    sha256                   text        check (octet_length(sha256) = 64 and translate(sha256, '0123456789abcdef', '') = ''),
    s3_key                   text        not null,

    attachment_status        varchar(20) not null default 'PENDING'
                             check (attachment_status in ('PENDING', 'ATTACHED', 'FAILED')),
    attachment_error_code    varchar(64),
    attachment_error_message text,
    attached_at              timestamptz,
    attempt_count            integer     not null default 0,
    retry_count              integer     not null default 0,
    -- The limit that was configured at ingestion; generated columns can't read the configuration.
    max_retries              integer     not null check (max_retries >= 0),

    retry_status             varchar(20) not null default 'PENDING'
                             check (retry_status in ('PENDING', 'RETRY_SCHEDULED', 'RETRYING', 'RETRY_SUCCESS',
                                                     'RETRY_FAILED', 'PERMANENT_FAILED')),
    next_retry_at            timestamptz,
    last_retry_at            timestamptz,
    -- When the scheduler last enqueued an event for it.
    scheduled_at             timestamptz,
    -- The attach task that holds it, as long as that task's lease is valid.
    held_by                  bigint,

    error_category           varchar(20) generated always as (evidence.error_category(attachment_error_code)) stored,
    is_retryable             boolean     generated always as (
        coalesce(evidence.error_category(attachment_error_code) in ('NETWORK', 'SYSTEM'), false)
        and attachment_status = 'FAILED' and retry_count < max_retries and retry_status <> 'PERMANENT_FAILED') stored,

    created_at               timestamptz not null default now(),
    updated_at               timestamptz not null default now(),

    unique (file_job_row_id, artifact_number),
    constraint artifact_attached_has_time check ((attached_at is not null) = (attachment_status = 'ATTACHED')),
    constraint artifact_failed_has_code
        check ((attachment_error_code is not null) = (attachment_status = 'FAILED')),
    constraint artifact_pending_is_untried check ((attempt_count = 0) = (attachment_status = 'PENDING')),
    constraint artifact_retries_follow check (retry_count = greatest(attempt_count - 1, 0)),
    constraint artifact_retryable_has_time check (is_retryable = (next_retry_at is not null)),
    constraint artifact_failed_for_good
        check (attachment_status <> 'FAILED' or is_retryable or retry_status = 'PERMANENT_FAILED')
) with (fillfactor = 45); -- room for a second version of every row, so that holding an artifact updates no index

create index idx_artifact_by_job_row on evidence.file_job_artifact (file_job_id, file_job_row_id);

-- Retryable artifacts, which the scheduler scans. No index covers a column that holding an artifact changes.
create index idx_artifact_retry_scan on evidence.file_job_artifact (next_retry_at, file_job_row_id) where is_retryable;

-- N2 is due when nothing is left to retry.
create index idx_artifact_unsettled on evidence.file_job_artifact (file_job_id) where is_retryable;

-- The append-only attempt log, which explains attempt_count and retry_count. LOST is a call whose worker died before it
-- recorded the result.
create table evidence.attach_attempt (
    at            timestamptz not null default clock_timestamp(),
    artifact_id   uuid        not null,
    attempt       integer     not null check (attempt > 0),
    outcome       text        not null check (outcome in ('ATTACHED', 'FAILED', 'LOST')),
    error_code    text,
    error_message text,
    event_id      uuid        not null,
    worker        text        not null,
    started_at    timestamptz not null,
    constraint attempt_failed_has_code check ((error_code is not null) = (outcome = 'FAILED'))
);

create unique index attach_attempt_of_artifact on evidence.attach_attempt (artifact_id, attempt) where outcome <> 'LOST';
create index attach_attempt_lost on evidence.attach_attempt (artifact_id) where outcome = 'LOST';
create index attach_attempt_at on evidence.attach_attempt using brin (at);

-- N1 and N2: at most one of each per job, inserted with the job's marker and the message.
create table evidence.notification (
    id           uuid        primary key,
    file_job_id  uuid        not null references evidence.file_job,
    kind         text        not null check (kind in ('evidence.n1', 'evidence.n2')),
    body         jsonb       not null,
    created_at   timestamptz not null default now(),
    -- When a receiver confirmed it.
    delivered_at timestamptz,
    unique (file_job_id, kind)
);

-- Attach tasks: one row per received event until its artifacts are handled. A worker's lease is on the task; an artifact
-- that is being attached names the task that holds it.
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
    -- What a dead letter has in common with others: the error code and message without specifics. Null unless it is dead, so
    -- that no claim and no success touches its index.
    cause           text collate "C",

    constraint attach_task_leased_has_lease
        check (num_nonnulls(lease_until, fence, lease_owner) = case when state = 'leased' then 3 else 0 end),
    constraint attach_task_finished_has_time check ((state in ('done', 'dead')) = (finished_at is not null)),
    constraint attach_task_dead_has_reason   check (state <> 'dead' or num_nulls(error_code, cause) = 0),
    constraint attach_task_waiting_not_fresh check (state <> 'ready' or attempts = 0),
    constraint attach_task_parked_is_never_due check ((parked is not null) = (due = 'infinity'))
) with (fillfactor = 45, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);

-- Claims: due first, oldest first.
create index attach_task_claim on evidence.attach_task (due, id) where finished_at is null;

-- Whether a row has an unfinished task.
create index attach_task_row on evidence.attach_task (file_job_row_id) where finished_at is null;

-- Dead letters by age and by cause.
create index attach_task_dead on evidence.attach_task (finished_at, id) where finished_at is not null;
create index attach_task_cause on evidence.attach_task (cause, finished_at, id) where cause is not null;

-- Subscriptions, declared up front: nothing that is published before a worker starts is lost.
select postrider.subscribe('evidence.attach.requests', 'evidence.attach'),
       postrider.subscribe('evidence.failed.requests', 'evidence.attach'),
       postrider.subscribe('evidence.attach.results', 'evidence.notify'),
       postrider.subscribe('evidence.notifications', 'evidence.deliver');

-- Records of the built-in Case API: what was attached, by artifact. Written in transactions of its own, like the records of
-- an outside API.
create table evidence.paper_evidence (
    artifact_id uuid        primary key,
    case_id     uuid        not null,
    file_name   text,
    sha256      text        not null,
    received_at timestamptz not null default clock_timestamp()
);

-- Initial statistics: without any, the planner expects few rows and reads every artifact of every job to find those of a
-- few.
insert into evidence.attach_task (id, event_id, file_job_id, file_job_row_id, is_retry) overriding system value
select -n, gen_random_uuid(), gen_random_uuid(), gen_random_uuid(), false from generate_series(1, 300) n;
analyze evidence.attach_task;
delete from evidence.attach_task where id < 0;

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
