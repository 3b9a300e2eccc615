-- Clinical protocols and how far each has come through extraction, grounding and review.
--
-- Nine states as text. Which of them exist is checked below; which may follow which is the business of the transition
-- table, in the program (Status::may_become) and once more here, so that nobody leaves it by hand. A test compares both.

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
    -- The order of the listing.
    seq          bigint      generated always as identity unique,
    created_at   timestamptz not null default now(),
    updated_at   timestamptz not null default now(),
    title        text        not null check (char_length(title) between 1 and 500),
    status       text        not null default 'uploaded' check (status in (
                     'uploaded', 'extracting', 'extraction_failed', 'grounding', 'grounding_failed', 'pending_review',
                     'complete', 'dead_letter', 'archived')),
    -- Grows with every manual retry and every rejection. Events carry it: one of an older try changes nothing.
    try          integer     not null default 1 check (try >= 1),
    -- For people; metadata.error has the particulars.
    error_reason text,
    metadata     jsonb       not null default '{}' check (jsonb_typeof(metadata) = 'object'),
    -- What the stages have found so far.
    criteria     jsonb       check (jsonb_typeof(criteria) = 'array'),
    -- Where the document is, in the object store.
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

-- The listing by state, newest first.
create index protocol_status on protocols.protocol (status, seq);

-- The archiving of what nobody touched for long.
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

comment on column protocols.protocol.try is 'Which pass through the pipeline this is; a retry or a rejection begins the next.';
