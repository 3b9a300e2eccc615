-- What a dead letter has in common with others: its failure's code and message without the particulars. It is written when
-- the item is given up and taken away when it begins anew, so no claim and no success ever touches it or its index.

alter table postrider.outbox add column cause text collate "C";

update postrider.outbox set cause = left(error_code || ': ' || regexp_replace(coalesce(error_message, ''), '[0-9]+', '<n>', 'g'), 200)
where finished_at is not null and state = 'dead';

alter table postrider.outbox drop constraint outbox_dead_has_reason;
alter table postrider.outbox add constraint outbox_dead_has_reason
    check (state <> 'dead' or num_nulls(error_code, cause) = 0);

create index outbox_cause on postrider.outbox (cause, finished_at, id) where cause is not null;

alter table postrider.delivery add column cause text collate "C";

update postrider.delivery set cause = left(error_code || ': ' || regexp_replace(coalesce(error_message, ''), '[0-9]+', '<n>', 'g'), 200)
where finished_at is not null and state = 'dead';

alter table postrider.delivery drop constraint delivery_dead_has_reason;
alter table postrider.delivery add constraint delivery_dead_has_reason
    check (state <> 'dead' or num_nulls(error_code, cause) = 0);

create index delivery_cause on postrider.delivery (cause, finished_at, id) where cause is not null;
