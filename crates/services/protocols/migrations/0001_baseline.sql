-- Clinical protocols, and the events that take them through extraction, grounding and review.

-- The state diagram. The program has the same one (Status::successors); a test compares the two. Here it also holds for
-- changes made by hand.
create function protocols.may_become(old_status text, new_status text) returns boolean
    language sql immutable as $$
    select (old_status, new_status) in (
        ('uploaded', 'extracting'),
        ('extracting', 'grounding'), ('extracting', 'extraction_failed'), ('extracting', 'dead_letter'),
        ('extraction_failed', 'extracting'), ('extraction_failed', 'uploaded'), ('extraction_failed', 'dead_letter'),
        ('grounding', 'pending_review'), ('grounding', 'grounding_failed'), ('grounding', 'dead_letter'),
        ('grounding_failed', 'grounding'), ('grounding_failed', 'uploaded'), ('grounding_failed', 'dead_letter'),
        ('pending_review', 'complete'), ('pending_review', 'uploaded'),
        ('dead_letter', 'uploaded'), ('dead_letter', 'archived'))
$$;

create table protocols.protocol (
    id           uuid        primary key,
    -- Sort key of the listing.
    seq          bigint      generated always as identity unique,
    created_at   timestamptz not null default now(),
    updated_at   timestamptz not null default now(),
    title        text        not null check (char_length(title) between 1 and 500),
    status       text        not null default 'uploaded' check (status in (
                     'uploaded', 'extracting', 'extraction_failed', 'grounding', 'grounding_failed', 'pending_review',
                     'complete', 'dead_letter', 'archived')),
    -- Incremented by every manual retry and every rejection. Events carry it: one of an older try has no effect.
    try          integer     not null default 1 check (try >= 1),
    -- A sentence for people; metadata.error has the details.
    error_reason text,
    metadata     jsonb       not null default '{}' check (jsonb_typeof(metadata) = 'object'),
    -- The stages' result so far.
    criteria     jsonb       check (jsonb_typeof(criteria) = 'array'),
    -- The document's key in the object store.
    document_key text        not null,
    media_type   text        not null check (media_type in ('text/plain', 'application/pdf')),

    constraint protocol_failure_has_reason check (
        error_reason is not null
        or status not in ('extraction_failed', 'grounding_failed', 'dead_letter', 'archived')),
    constraint protocol_well_has_no_reason check (
        error_reason is null or status not in ('uploaded', 'pending_review', 'complete')),
    constraint protocol_extracted_has_criteria check (
        criteria is not null or status not in ('grounding', 'grounding_failed', 'pending_review', 'complete')),
    constraint protocol_dead_has_error check (
        metadata ? 'error' or status not in ('dead_letter', 'archived'))
) with (fillfactor = 80);

comment on column protocols.protocol.try is 'Number of the pass through the pipeline; a retry or a rejection starts the next.';

-- The listing by status, newest first.
create index protocol_status on protocols.protocol (status, seq);

-- Archiving of old dead letters.
create index protocol_dead on protocols.protocol (updated_at) where status = 'dead_letter';

create function protocols.guard_status() returns trigger language plpgsql as $$
begin
    if not protocols.may_become(old.status, new.status) then
        raise exception 'a protocol that is % does not become %', old.status, new.status
            using errcode = 'check_violation', constraint = 'protocol_transition';
    end if;
    return new;
end
$$;

create trigger guard_status before update on protocols.protocol
    for each row when (old.status is distinct from new.status) execute function protocols.guard_status();

-- One event per protocol, try and type. pending: waits for its first attempt. processing: leased. failed: waits for the
-- next attempt. published: done. dead_letter: out of attempts, or failed for good. There is no index on status, because
-- every claim would have to update it.
create table protocols.outbox (
    id             bigint      generated always as identity primary key,
    created_at     timestamptz not null default now(),
    due            timestamptz not null default now(),
    -- Null until the event is finished; every index is partial on it.
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
    -- Groups dead letters: code and message without numbers. Set when the event dies and cleared by a redrive, so that
    -- neither a claim nor a success touches its indexes.
    cause          text collate "C",

    constraint outbox_once unique (protocol_id, try, event_type),
    constraint outbox_processing_has_lease
        check (num_nonnulls(locked_until, fence, locked_by) = case when status = 'processing' then 3 else 0 end),
    constraint outbox_finished_has_time
        check ((finished_at is not null) = (status in ('published', 'dead_letter'))),
    constraint outbox_dead_has_reason   check (status <> 'dead_letter' or num_nulls(error_code, cause) = 0),
    constraint outbox_pending_is_fresh  check (status <> 'pending' or retry_count = 0)
) with (fillfactor = 45, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);

-- The claim: due first, oldest first.
create index outbox_claim on protocols.outbox (due, id) where finished_at is null;

-- Cleanup of finished events by age.
create index outbox_finished on protocols.outbox (finished_at, id) where finished_at is not null;

-- Dead letters by cause, and newest first.
create index outbox_cause on protocols.outbox (cause, finished_at, id) where cause is not null;
create index outbox_dead on protocols.outbox (finished_at, id) where cause is not null;
