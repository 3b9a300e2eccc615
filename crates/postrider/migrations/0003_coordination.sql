-- Idempotency, deduplication, leadership, breakers and alerts.

-- Idempotency ledger. The library never deletes rows: a forgotten key could be used twice.
create table postrider.ledger (
    -- Collation C: keys are bytes; their order depends on no locale, and comparison is cheap.
    scope       text collate "C" not null check (octet_length(scope) between 1 and 100),
    key         text collate "C" not null check (octet_length(key) between 1 and 255),
    digest      bytea       not null check (octet_length(digest) = 32),
    state       text        not null default 'accepted' check (state in ('accepted', 'succeeded', 'failed')),
    result      jsonb,
    created_at  timestamptz not null default clock_timestamp(),
    finished_at timestamptz,
    primary key (scope, key),
    constraint ledger_finished_exactly_when_final check ((state = 'accepted') = (finished_at is null)),
    constraint ledger_no_result_before_the_end check (state <> 'accepted' or result is null)
) with (fillfactor = 90); -- room for the one update of each row

comment on table postrider.ledger is 'One row per idempotency key: digest of the request, and its result.';

-- Inbox: messages that a consumer has handled, written in the transaction of the effect.
create table postrider.inbox (
    consumer    text collate "C" not null check (octet_length(consumer) between 1 and 100),
    message_id  text collate "C" not null check (octet_length(message_id) between 1 and 255),
    received_at timestamptz not null default clock_timestamp(),
    primary key (consumer, message_id)
);

-- Retention deletes the oldest rows first.
create index inbox_received_at on postrider.inbox (received_at);

comment on table postrider.inbox is 'Ids of handled messages, so that a redelivery has no second effect.';

-- Leaders: one row per periodic task.
create table postrider.leader (
    name      text        primary key check (octet_length(name) between 1 and 100),
    holder    uuid,
    term      bigint      not null check (term > 0),
    until     timestamptz,
    heartbeat timestamptz not null default clock_timestamp(),
    ran_at    timestamptz,
    done_at   timestamptz,
    constraint leader_held_exactly_while_leased check ((holder is null) = (until is null))
) with (fillfactor = 50); -- heartbeats stay heap-only

comment on column postrider.leader.term is 'Increases by one with each new leader. A task may store it with its effects to fence off a paused predecessor.';
comment on column postrider.leader.ran_at is 'End of the last run, successful or not. The next leader continues the schedule from here.';
comment on column postrider.leader.done_at is 'End of the last successful run. Earlier than ran_at: the last run failed.';

-- Breaker state of each process for each dependency. Written on transitions only, for operators.
create table postrider.breaker (
    dependency text        not null check (octet_length(dependency) between 1 and 100),
    process    uuid        not null,
    state      text        not null check (state in ('closed', 'open', 'half_open')),
    failures   bigint      not null check (failures >= 0),
    open_until timestamptz,
    changed_at timestamptz not null default clock_timestamp(),
    primary key (dependency, process),
    constraint breaker_open_exactly_until check ((state = 'open') = (open_until is not null))
);

comment on table postrider.breaker is 'Circuit breakers by dependency and process. The state machine itself lives in the process.';

-- Alerts: one row per rule, subject and period, from the start of the condition.
create table postrider.alert (
    id          uuid        primary key,
    rule        text        not null check (octet_length(rule) between 1 and 100),
    -- Table, dependency or task that the alert is about; empty if the rule has only one.
    subject     text        not null,
    severity    text        not null check (severity in ('critical', 'warning')),
    value       float8      not null,
    -- Start of the condition. The alert fires once the condition has lasted as long as the rule requires.
    since       timestamptz not null default clock_timestamp(),
    fired_at    timestamptz,
    resolved_at timestamptz,
    constraint alert_resolved_had_fired check (resolved_at is null or fired_at is not null)
);

-- At most one open period per rule and subject, however many processes evaluate the rules.
create unique index alert_open on postrider.alert (rule, subject) where resolved_at is null;
create index alert_resolved on postrider.alert (resolved_at) where resolved_at is not null;

-- Identity of this installation. Message ids consist of it and the item's id, so that two installations never create the
-- same message id.
create table postrider.installation (
    only_one   boolean     primary key default true check (only_one),
    id         uuid        not null default gen_random_uuid(),
    created_at timestamptz not null default clock_timestamp()
);
insert into postrider.installation default values;

comment on table postrider.installation is 'One row. If you run a copy of the database next to the original, give the copy a new id.';
