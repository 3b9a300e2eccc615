-- One row per periodic task: who runs it, in which term, and until when that holds.
create table postrider.leader (
    name      text        primary key check (octet_length(name) between 1 and 100),
    holder    uuid,
    term      bigint      not null check (term > 0),
    until     timestamptz,
    heartbeat timestamptz not null default clock_timestamp(),
    ran_at    timestamptz,
    constraint leader_held_exactly_while_leased check ((holder is null) = (until is null))
) with (fillfactor = 50); -- heartbeats stay on their page

comment on column postrider.leader.term is 'Grows by one with each new leader; a task may write it beside its effects to fence off a paused predecessor.';
comment on column postrider.leader.ran_at is 'When the task last ended, well or not; the next leader keeps the rhythm.';
