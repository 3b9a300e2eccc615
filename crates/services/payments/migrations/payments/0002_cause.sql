-- What a dead letter has in common with others: its failure's code and message without the particulars. It is written when
-- the item is given up and taken away when it begins anew, so no claim and no success ever touches it or its index.

alter table payments.outbox add column cause text collate "C";

update payments.outbox set cause = left(last_error_code || ': ' || regexp_replace(coalesce(last_error, ''), '[0-9]+', '<n>', 'g'), 200)
where finished_at is not null and status = 'EXHAUSTED';

alter table payments.outbox drop constraint outbox_exhausted_has_reason;
alter table payments.outbox add constraint outbox_exhausted_has_reason
    check (status <> 'EXHAUSTED' or num_nulls(last_error_code, cause) = 0);

create index outbox_cause on payments.outbox (cause, finished_at, id) where cause is not null;

-- Finished rows stay here: those that are dead, newest first, without the others.
create index outbox_dead on payments.outbox (finished_at, id) where cause is not null;
