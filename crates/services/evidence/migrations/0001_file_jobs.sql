-- What merchants hand in: a job, its rows (one dispute case each), the rows' files, and every attempt to attach one.
--
-- The names are those that dashboards and queries already use. file_job_artifact is the truth about a file; a row's
-- counts and state follow from its artifacts, and the job's two notifications follow from all of them.

-- The one place that says what kind of failure a code is. No code, no category: what never failed is not retryable.
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
    -- With N2, or when there was none to send: from here on nothing of the job is changed.
    closed_at      timestamptz,

    constraint file_job_n2_follows_n1   check (n2_sent_at is null or n1_sent_at is not null),
    constraint file_job_n2_closes       check (n2_sent_at is null or closed_at is not null),
    constraint file_job_closed_after_n1 check (closed_at is null or n1_sent_at is not null),
    constraint file_job_forced_has_n2   check (not n2_forced or n2_sent_at is not null)
);

create index file_job_of_merchant on evidence.file_job (merchant_id, id);

-- What may still need N1, N2 or the force.
create index file_job_open on evidence.file_job (id) where closed_at is null;

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
    -- How many retry events were put for it: part of each event's dedupe key.
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

create table evidence.file_job_artifact (
    id                       uuid        primary key,
    file_job_id              uuid        not null references evidence.file_job,
    file_job_row_id          uuid        not null references evidence.file_job_row,
    case_id                  uuid        not null,
    artifact_number          integer     not null check (artifact_number > 0),
    file_name                text        not null,
    file_type                text,
    file_size_bytes          bigint,
    -- What was ingested; absent for an object that somebody else put into the store.
    sha256                   text        check (sha256 ~ '^[0-9a-f]{64}$'),
    s3_key                   text        not null,

    attachment_status        varchar(20) not null default 'PENDING'
                             check (attachment_status in ('PENDING', 'ATTACHED', 'FAILED')),
    attachment_error_code    varchar(64),
    attachment_error_message text,
    attached_at              timestamptz,
    attempt_count            integer     not null default 0,
    retry_count              integer     not null default 0,
    -- The configuration of the day it was ingested: a generated column can't look it up.
    max_retries              integer     not null check (max_retries >= 0),

    retry_status             varchar(20) not null default 'PENDING'
                             check (retry_status in ('PENDING', 'RETRY_SCHEDULED', 'RETRYING', 'RETRY_SUCCESS',
                                                     'RETRY_FAILED', 'PERMANENT_FAILED')),
    next_retry_at            timestamptz,
    last_retry_at            timestamptz,
    -- When the scheduler last put an event for it.
    scheduled_at             timestamptz,
    -- The attach task that works on it, for as long as that task's own lease lives.
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
) with (fillfactor = 60);

create index idx_artifact_by_job_row on evidence.file_job_artifact (file_job_id, file_job_row_id);

-- What the scheduler scans. None of these covers what holding an artifact changes.
create index idx_artifact_retry_scan on evidence.file_job_artifact (next_retry_at, file_job_row_id) where is_retryable;

-- The two gates: has every artifact been tried, is anything still to be retried?
create index idx_artifact_untried on evidence.file_job_artifact (file_job_id) where attempt_count = 0;
create index idx_artifact_unsettled on evidence.file_job_artifact (file_job_id) where is_retryable;

-- Append-only; it explains attempt_count and retry_count. LOST is a call whose worker died before it could record.
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

-- N1 and N2: at most one of each, written with the job's marker and with the message that carries it.
create table evidence.notification (
    id           uuid        primary key,
    file_job_id  uuid        not null references evidence.file_job,
    kind         text        not null check (kind in ('evidence.n1', 'evidence.n2')),
    body         jsonb       not null,
    created_at   timestamptz not null default now(),
    -- When a receiver said that it has it.
    delivered_at timestamptz,
    unique (file_job_id, kind)
);
