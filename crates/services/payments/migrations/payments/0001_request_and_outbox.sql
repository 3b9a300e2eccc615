-- The orchestrator's side: what clients asked for, and the message that each request must become.
--
-- A request and its outbox row are written in one transaction. The outbox speaks the words that people already query
-- (try_count counts the tries that failed); beside them stand the columns that a lease needs. There is no index on status
-- or try_count: a claim or a try would have to write it anew.

create table payments.request (
    uuid        uuid        primary key,
    -- The order of acceptance, for lists.
    seq         bigint      generated always as identity,
    created_at  timestamptz not null default now(),
    updated_at  timestamptz not null default now(),
    account_id  text        not null check (account_id ~ '^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$'),
    amount      numeric     not null check (amount > 0),
    currency    text        not null check (currency ~ '^[A-Z]{3}$'),
    description text        check (octet_length(description) <= 1000),
    status      text        not null default 'PENDING' check (status in ('PENDING', 'SUCCEED', 'FAILED')),
    -- Why it failed, or (after a reconciliation) why it had been stuck. While it is PENDING, the reason is asked for.
    reason      text,
    settled_by  text        check (settled_by in ('callback', 'reconcile')),

    constraint request_settled_by_somebody check ((status = 'PENDING') = (settled_by is null)),
    constraint request_failed_has_reason check (status <> 'FAILED' or reason is not null),
    constraint request_pending_has_none  check (status <> 'PENDING' or reason is null)
) with (fillfactor = 70);

-- Lists, newest first.
create unique index request_seq on payments.request (seq);

-- What is not settled yet, oldest first: reconciliation. Only settling changes it.
create index request_pending on payments.request (created_at, seq) where status = 'PENDING';

create table payments.outbox (
    id                  bigint generated always as identity primary key,
    created_at          timestamptz not null default now(),
    due                 timestamptz not null default now(),
    -- Set by finishing alone; tells unfinished rows apart in every index.
    finished_at         timestamptz,
    locked_until        timestamptz,
    fence               bigint,
    status              text        not null default 'PENDING'
                        check (status in ('PENDING', 'PUBLISHING', 'PUBLISHED', 'FAILED', 'EXHAUSTED')),
    try_count           integer     not null default 0 check (try_count >= 0),
    losses              integer     not null default 0,
    locked_by           text,
    uuid                uuid        not null unique,
    payload             jsonb       not null,
    last_error_code     text,
    last_error_category text,
    last_error          text,

    constraint outbox_publishing_has_lease
        check (num_nonnulls(locked_until, fence, locked_by) = case when status = 'PUBLISHING' then 3 else 0 end),
    constraint outbox_finished_has_time check ((finished_at is not null) = (status in ('PUBLISHED', 'EXHAUSTED'))),
    constraint outbox_exhausted_has_reason check (status <> 'EXHAUSTED' or last_error_code is not null),
    constraint outbox_pending_never_tried check (status <> 'PENDING' or try_count = 0)
) with (fillfactor = 45, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);

-- The claim: due first, oldest first.
create index outbox_claim on payments.outbox (due, id) where finished_at is null;

-- Dead letters and cleaning, by age.
create index outbox_finished on payments.outbox (finished_at, id) where finished_at is not null;

-- Durable: a message that goes out before the wallet has ever run waits for it. (Other transports are told at start.)
select postrider.subscribe('payments.requested', 'wallet');

comment on table payments.request is 'One row per payment that a client asked for; never deleted.';
comment on table payments.outbox is 'The message of each request, until it was published and its retention is over.';
