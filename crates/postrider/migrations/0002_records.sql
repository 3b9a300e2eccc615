-- Records of what happened: attempts, completions, operators' actions, workers. Append-only, deleted by age.

-- Failed attempts, and attempts after a failure. A success at the first attempt is recorded in postrider.completion only.
create table postrider.attempt (
    at         timestamptz not null default now(),
    work_table text not null,
    item_id    bigint not null,
    attempt    integer not null check (attempt > 0),
    worker     text not null,
    started_at timestamptz not null,
    outcome    text not null check (outcome in ('done', 'retry', 'snooze', 'dead')),
    code       text,
    category   text,
    message    text,
    constraint attempt_failure_has_code check (outcome not in ('retry', 'dead') or code is not null)
);
create index attempt_item on postrider.attempt (work_table, item_id, at);
create index attempt_at on postrider.attempt using brin (at);

-- Items that a deleting work table finished: one row per settled batch.
create table postrider.completion (
    at         timestamptz not null default now(),
    work_table text not null,
    worker     text not null,
    ids        bigint[] not null check (cardinality(ids) > 0)
);
create index completion_at on postrider.completion using brin (at);

-- The default compression of ids was a tenth of the server's work during a drain; lz4 costs next to nothing.
do $$
begin
    alter table postrider.completion alter column ids set compression lz4;
exception when feature_not_supported then
    null;
end
$$;

-- Operators' actions, including every transition out of a terminal state.
create table postrider.audit (
    id         bigint generated always as identity primary key,
    at         timestamptz not null default now(),
    actor      text not null check (actor <> ''),
    action     text not null,
    work_table text not null,
    items      bigint[] not null,
    reason     text
);
create index audit_at on postrider.audit (at);

-- Actions on one item.
create index audit_items on postrider.audit using gin (items);

-- Archived dead letters, complete.
create table postrider.archive (
    work_table  text not null,
    item_id     bigint not null,
    archived_at timestamptz not null default now(),
    item        jsonb not null,
    primary key (work_table, item_id, archived_at)
);
create index archive_at on postrider.archive (archived_at);

-- Live workers and the kinds that they handle. Items of a kind that no worker handles are found by comparison with this table.
create table postrider.worker (
    id         text primary key,
    name       text not null,
    work_table text not null,
    -- null: all kinds
    kinds      text[],
    started_at timestamptz not null default now(),
    seen_at    timestamptz not null default now(),
    -- The worker counts as gone this long after its last heartbeat.
    ttl        interval not null
);

-- Bulk actions on dead letters. Any process continues an operation, one chunk per transaction: the chunk's changes and the
-- operation's progress commit together.
create table postrider.operation (
    id          bigint      generated always as identity primary key,
    -- Items that die after this time are not part of the operation.
    created_at  timestamptz not null default clock_timestamp(),
    actor       text        not null check (actor <> ''),
    reason      text,
    action      text        not null check (action in ('redrive', 'archive')),
    filter      jsonb       not null,
    -- Maximum items per second; null: unlimited.
    rate        float8      check (rate > 0),
    -- Maximum number of items.
    most        bigint      check (most > 0),
    -- The operator confirmed that the items may be stale.
    confirmed   boolean     not null default false,
    -- Rate limiter: time is used up to here.
    paced_at    timestamptz not null default clock_timestamp(),
    -- Position of the last dead letter processed.
    reached     jsonb,
    changed     bigint      not null default 0,
    skipped     bigint      not null default 0,
    finished_at timestamptz,
    stopped_by  text,
    constraint operation_stopped_is_finished check (stopped_by is null or finished_at is not null)
);

create index operation_open on postrider.operation (id) where finished_at is null;
