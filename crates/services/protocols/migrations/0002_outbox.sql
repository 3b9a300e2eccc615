-- Events that move protocols on: one per protocol, try and kind, worked on until it is published or given up.
--
-- pending: waits for its first attempt. processing: a worker has it. failed: waits for the next attempt. published: done.
-- dead_letter: given up. There is no index on status: a claim changes it, and would have to write the index anew.

create table protocols.outbox (
    id             bigint      generated always as identity primary key,
    created_at     timestamptz not null default now(),
    due            timestamptz not null default now(),
    -- Set by finishing alone; tells unfinished rows apart in every index.
    finished_at    timestamptz,
    locked_until   timestamptz,
    fence          bigint,
    protocol_id    uuid        not null references protocols.protocol,
    try            integer     not null check (try >= 1),
    status         text        not null default 'pending'
                   check (status in ('pending', 'processing', 'published', 'failed', 'dead_letter')),
    retry_count    integer     not null default 0,
    losses         integer     not null default 0,
    event_type     text        not null check (event_type in ('PROTOCOL_UPLOADED', 'CRITERIA_EXTRACTED')),
    locked_by      text,
    error_code     text,
    error_category text,
    error_message  text,

    -- However often somebody asks, a try has one event of a kind.
    constraint outbox_once unique (protocol_id, try, event_type),
    constraint outbox_processing_has_lease
        check (num_nonnulls(locked_until, fence, locked_by) = case when status = 'processing' then 3 else 0 end),
    constraint outbox_finished_has_time
        check ((finished_at is not null) = (status in ('published', 'dead_letter'))),
    constraint outbox_dead_has_reason   check (status <> 'dead_letter' or error_code is not null),
    constraint outbox_pending_is_fresh  check (status <> 'pending' or retry_count = 0)
) with (fillfactor = 45, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);

-- The claim: due first, oldest first.
create index outbox_claim on protocols.outbox (due, id) where finished_at is null;

-- Dead letters and cleaning, by age.
create index outbox_finished on protocols.outbox (finished_at, id) where finished_at is not null;
