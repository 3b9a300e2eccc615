-- The wallet's side: accounts, what was taken in, what was moved, and what must still be told.
--
-- The wallet may live in a database of its own. It shares no table and no transaction with the orchestrator.

create table wallet.account (
    account_id text        primary key check (account_id ~ '^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$'),
    currency   text        not null check (currency ~ '^[A-Z]{3}$'),
    balance    numeric     not null,
    -- What it was opened with: an equal request again is no second account.
    opening    numeric     not null check (opening >= 0),
    created_at timestamptz not null default now(),
    constraint account_never_below_zero check (balance >= 0)
) with (fillfactor = 50);

-- Every payment that was taken in, once. Never deleted: a forgotten uuid could be deducted a second time.
create table wallet.inbox (
    uuid           uuid        primary key,
    received_at    timestamptz not null default now(),
    -- TOMBSTONE: a reconciliation declared the request failed; a late message must not deduct any more.
    status         text        not null check (status in ('SUCCEED', 'FAILED', 'TOMBSTONE')),
    reason         text,
    message_id     uuid,
    account_id     text,
    amount         numeric,
    currency       text,
    -- The one call back of the mode "chance" that came to nothing.
    callback_error text,

    constraint inbox_failed_has_reason check ((status = 'FAILED') = (reason is not null)),
    constraint inbox_knows_the_payment
        check (num_nonnulls(message_id, account_id, amount, currency) = case when status = 'TOMBSTONE' then 0 else 4 end)
) with (fillfactor = 90);

-- Double entry: the rows of one uuid sum to zero. Names with a colon are the house's own side of the books.
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

-- Messages whose handling failed unexpectedly and was given up, by the mode "chance".
create table wallet.failure (
    id         bigint      generated always as identity primary key,
    failed_at  timestamptz not null default clock_timestamp(),
    -- Null where the message could not even be read.
    uuid       uuid,
    message_id uuid        not null,
    error_code text        not null,
    error      text        not null
);

create index failure_uuid on wallet.failure (uuid);

-- Call backs that the mode "assured" owes: a row goes when the orchestrator has it.
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

    constraint outbox_calling_has_lease
        check (num_nonnulls(locked_until, fence, locked_by) = case when status = 'CALLING' then 3 else 0 end),
    constraint outbox_finished_has_time check ((finished_at is not null) = (status in ('DELIVERED', 'EXHAUSTED'))),
    constraint outbox_exhausted_has_reason check (status <> 'EXHAUSTED' or last_error_code is not null),
    constraint outbox_pending_never_tried check (status <> 'PENDING' or try_count = 0)
) with (fillfactor = 45, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);

create index outbox_claim on wallet.outbox (due, id) where finished_at is null;
create index outbox_finished on wallet.outbox (finished_at, id) where finished_at is not null;
