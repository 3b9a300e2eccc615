-- What happened: append-only, pruned by age.

-- One row per attempt that failed or that followed a failure; a success at the first try is told by "completion".
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

-- One row per settled batch: which items a deleting table finished, when, and by whom.
create table postrider.completion (
    at         timestamptz not null default now(),
    work_table text not null,
    worker     text not null,
    ids        bigint[] not null check (cardinality(ids) > 0)
);
create index completion_at on postrider.completion using brin (at);

-- Every move out of a terminal state and every other deed of a person.
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

-- Dead items that were laid to rest, whole.
create table postrider.archive (
    work_table  text not null,
    item_id     bigint not null,
    archived_at timestamptz not null default now(),
    item        jsonb not null,
    primary key (work_table, item_id, archived_at)
);
create index archive_at on postrider.archive (archived_at);

-- Who works, and what each can handle: an item whose kind nobody handles is found by comparing with this.
create table postrider.worker (
    id         text primary key,
    name       text not null,
    work_table text not null,
    -- null: every kind
    kinds      text[],
    started_at timestamptz not null default now(),
    seen_at    timestamptz not null default now(),
    -- Longer than this without a sign of life, and it counts as gone.
    ttl        interval not null
);
