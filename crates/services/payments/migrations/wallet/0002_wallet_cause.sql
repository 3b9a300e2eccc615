-- What a dead letter has in common with others: its failure's code and message without the particulars. It is written when
-- the item is given up and taken away when it begins anew, so no claim and no success ever touches it or its index.

alter table wallet.outbox add column cause text collate "C";

update wallet.outbox set cause = left(last_error_code || ': ' || regexp_replace(coalesce(last_error, ''), '[0-9]+', '<n>', 'g'), 200)
where finished_at is not null and status = 'EXHAUSTED';

alter table wallet.outbox drop constraint outbox_exhausted_has_reason;
alter table wallet.outbox add constraint outbox_exhausted_has_reason
    check (status <> 'EXHAUSTED' or num_nulls(last_error_code, cause) = 0);

create index outbox_cause on wallet.outbox (cause, finished_at, id) where cause is not null;
