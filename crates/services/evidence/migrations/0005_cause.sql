-- What a dead letter has in common with others: its failure's code and message without the particulars. It is written when
-- the item is given up and taken away when it begins anew, so no claim and no success ever touches it or its index.

alter table evidence.attach_task add column cause text collate "C";

update evidence.attach_task set cause = left(error_code || ': ' || regexp_replace(coalesce(error_message, ''), '[0-9]+', '<n>', 'g'), 200)
where finished_at is not null and state = 'dead';

alter table evidence.attach_task drop constraint attach_task_dead_has_reason;
alter table evidence.attach_task add constraint attach_task_dead_has_reason
    check (state <> 'dead' or num_nulls(error_code, cause) = 0);

create index attach_task_cause on evidence.attach_task (cause, finished_at, id) where cause is not null;
