-- Schema `wallet`: accounts, the inbox of payments, double-entry bookings, and callbacks to deliver.
--
-- The wallet may live in a database of its own. It shares no table and no transaction with the schema `payments`.

create table wallet.account (
    account_id text        primary key check (account_id ~ '^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$'),
    currency   text        not null check (currency ~ '^[A-Z]{3}$'),
    balance    numeric     not null,
    -- The opening balance: repeating the same request does not open a second account.
    opening    numeric     not null check (opening >= 0),
    created_at timestamptz not null default now(),
    constraint account_never_below_zero check (balance >= 0)
) with (fillfactor = 50);

-- Every handled payment, once. Never deleted: a forgotten uuid could be deducted a second time.
create table wallet.inbox (
    uuid           uuid        primary key,
    received_at    timestamptz not null default now(),
    -- TOMBSTONE: a reconciliation settled the request as failed; a late message must not deduct any more.
    status         text        not null check (status in ('SUCCEED', 'FAILED', 'TOMBSTONE')),
    reason         text,
    message_id     uuid,
    account_id     text,
    amount         numeric,
    currency       text,
    -- Mode `chance`: why the only callback failed.
    callback_error text,

    constraint inbox_failed_has_reason check ((status = 'FAILED') = (reason is not null)),
    constraint inbox_knows_the_payment
        check (num_nonnulls(message_id, account_id, amount, currency) = case when status = 'TOMBSTONE' then 0 else 4 end)
) with (fillfactor = 90);

-- Double entry: the entries of one uuid sum to zero. Account ids with a colon are the wallet's own side.
create table wallet.entry (
    id         bigint      generated always as identity primary key,
    uuid       uuid        not null,
    account_id text        not null,
    amount     numeric     not null check (amount <> 0),
    currency   text        not null,
    kind       text        not null check (kind in ('opening', 'payment')),
    created_at timestamptz not null default now()
);

create index entry_account on wallet.entry (account_id, id);

-- Messages that could not be handled because of an unexpected failure and are not retried any more.
create table wallet.failure (
    id         bigint      generated always as identity primary key,
    failed_at  timestamptz not null default clock_timestamp(),
    -- Null if the message could not be read.
    uuid       uuid,
    message_id uuid        not null,
    error_code text        not null,
    error      text        not null
);

create index failure_uuid on wallet.failure (uuid);

-- Mode `assured`: callbacks to deliver. A row is deleted once the receiver has it.
create table wallet.outbox (
    id                  bigint generated always as identity primary key,
    created_at          timestamptz not null default now(),
    due                 timestamptz not null default now(),
    finished_at         timestamptz,
    locked_until        timestamptz,
    fence               bigint,
    status              text        not null default 'PENDING'
                        check (status in ('PENDING', 'CALLING', 'DELIVERED', 'FAILED', 'EXHAUSTED')),
    try_count           integer     not null default 0 check (try_count >= 0),
    losses              integer     not null default 0,
    locked_by           text,
    uuid                uuid        not null unique,
    outcome             text        not null check (outcome in ('SUCCEED', 'FAILED')),
    reason              text,
    last_error_code     text,
    last_error_category text,
    last_error          text,
    -- Dead letters only: code and message without the particulars, to group them.
    cause               text collate "C",
    -- The payment's W3C trace context, sent with the callback.
    trace               text,
    tracestate          text,

    constraint outbox_calling_has_lease
        check (num_nonnulls(locked_until, fence, locked_by) = case when status = 'CALLING' then 3 else 0 end),
    constraint outbox_finished_has_time check ((finished_at is not null) = (status in ('DELIVERED', 'EXHAUSTED'))),
    constraint outbox_exhausted_has_reason check (status <> 'EXHAUSTED' or num_nulls(last_error_code, cause) = 0),
    constraint outbox_pending_never_tried check (status <> 'PENDING' or try_count = 0)
) with (fillfactor = 45, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);

create index outbox_claim on wallet.outbox (due, id) where finished_at is null;
create index outbox_finished on wallet.outbox (finished_at, id) where finished_at is not null;
create index outbox_cause on wallet.outbox (cause, finished_at, id) where cause is not null;

-- Initial statistics: the planner should know unfinished rows before the first ANALYZE, or it picks a sequential scan for
-- the claim.
insert into wallet.outbox (id, uuid, outcome) overriding system value
select -n, gen_random_uuid(), 'SUCCEED' from generate_series(1, 300) n;
analyze wallet.outbox;
delete from wallet.outbox where id < 0;
