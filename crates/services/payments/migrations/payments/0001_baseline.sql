-- Schema `payments`: what clients asked for, and the message that each request becomes.
--
-- A request and its outbox row are written in one transaction. The outbox has the names that people already query
-- (try_count is the number of failed attempts), and in addition the columns that a lease needs. There is no index on
-- status or try_count: every claim or attempt would have to update it.

create table payments.request (
    uuid        uuid        primary key,
    -- Order of acceptance, for listings.
    seq         bigint      generated always as identity,
    created_at  timestamptz not null default now(),
    updated_at  timestamptz not null default now(),
    account_id  text        not null check (account_id ~ '^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$'),
    amount      numeric     not null check (amount > 0),
    currency    text        not null check (currency ~ '^[A-Z]{3}$'),
    description text        check (octet_length(description) <= 1000),
    status      text        not null default 'PENDING' check (status in ('PENDING', 'SUCCEED', 'FAILED')),
    -- Why it failed or, after a reconciliation, why it was stuck. The reason of a PENDING payment is computed on read.
    reason      text,
    settled_by  text        check (settled_by in ('callback', 'reconcile')),
    -- The client's W3C traceparent.
    trace       text,

    constraint request_settled_by_somebody check ((status = 'PENDING') = (settled_by is null)),
    constraint request_failed_has_reason check (status <> 'FAILED' or reason is not null),
    constraint request_pending_has_none  check (status <> 'PENDING' or reason is null)
) with (fillfactor = 70);

comment on table payments.request is 'One row per payment that a client requested; never deleted.';

-- Listings, newest first.
create unique index request_seq on payments.request (seq);

-- Pending requests, oldest first, for reconciliation. Only settling changes it.
create index request_pending on payments.request (created_at, seq) where status = 'PENDING';

-- Payments by trace id; requests without one cost nothing.
create index request_trace on payments.request (substr(trace, 4, 32), seq) where trace is not null;

create table payments.outbox (
    id                  bigint generated always as identity primary key,
    created_at          timestamptz not null default now(),
    due                 timestamptz not null default now(),
    -- Set only when the row finishes; every partial index distinguishes unfinished rows by it.
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
    -- Dead letters only: code and message without the particulars, to group them. Written when the row is exhausted and
    -- cleared by a redrive, so no claim and no success touches it or its indexes.
    cause               text collate "C",
    -- The client's W3C trace context, sent with the message.
    trace               text,
    tracestate          text,

    constraint outbox_publishing_has_lease
        check (num_nonnulls(locked_until, fence, locked_by) = case when status = 'PUBLISHING' then 3 else 0 end),
    constraint outbox_finished_has_time check ((finished_at is not null) = (status in ('PUBLISHED', 'EXHAUSTED'))),
    constraint outbox_exhausted_has_reason check (status <> 'EXHAUSTED' or num_nulls(last_error_code, cause) = 0),
    constraint outbox_pending_never_tried check (status <> 'PENDING' or try_count = 0)
) with (fillfactor = 45, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);

comment on table payments.outbox is 'The message of each request, until it is published and its retention is over.';

-- The claim: due first, oldest first.
create index outbox_claim on payments.outbox (due, id) where finished_at is null;

-- Clean-up, by age.
create index outbox_finished on payments.outbox (finished_at, id) where finished_at is not null;

-- Dead letters: by cause, and newest first.
create index outbox_cause on payments.outbox (cause, finished_at, id) where cause is not null;
create index outbox_dead on payments.outbox (finished_at, id) where cause is not null;

-- Durable subscription: messages published before the wallet has ever run wait for it. (Other transports declare it at
-- startup.)
select postrider.subscribe('payments.requested', 'wallet');

-- Initial statistics: the planner should know unfinished rows before the first ANALYZE, or it picks a sequential scan for
-- the claim.
insert into payments.outbox (id, uuid, payload) overriding system value
select -n, gen_random_uuid(), '{}' from generate_series(1, 300) n;
analyze payments.outbox;
delete from payments.outbox where id < 0;
