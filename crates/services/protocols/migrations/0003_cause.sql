-- What a dead letter has in common with others: its failure's code and message without the particulars. It is written when
-- the item is given up and taken away when it begins anew, so no claim and no success ever touches it or its index.

alter table protocols.outbox add column cause text collate "C";

update protocols.outbox set cause = left(error_code || ': ' || regexp_replace(coalesce(error_message, ''), '[0-9]+', '<n>', 'g'), 200)
where finished_at is not null and status = 'dead_letter';

alter table protocols.outbox drop constraint outbox_dead_has_reason;
alter table protocols.outbox add constraint outbox_dead_has_reason
    check (status <> 'dead_letter' or num_nulls(error_code, cause) = 0);

create index outbox_cause on protocols.outbox (cause, finished_at, id) where cause is not null;

-- Finished rows stay here: those that are dead, newest first, without the others.
create index outbox_dead on protocols.outbox (finished_at, id) where cause is not null;
