-- The idempotency ledger. Rows are never deleted by the engine: a key that was forgotten could be used twice.
create table postrider.ledger (
    -- Keys are bytes to us: no language decides their order, and comparing them is cheap.
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
) with (fillfactor = 90); -- room for the one update that a row gets

comment on table postrider.ledger is 'One row per idempotency key: what was asked (digest) and what came of it.';
