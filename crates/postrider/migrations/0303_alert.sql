-- What is wrong, as the rules see it: one row per rule, subject and period from when its condition began to hold.

create table postrider.alert (
    id          uuid        primary key,
    rule        text        not null check (octet_length(rule) between 1 and 100),
    -- Which of several: a table, a dependency, a task. Empty where the rule has but one.
    subject     text        not null,
    severity    text        not null check (severity in ('critical', 'warning')),
    value       float8      not null,
    -- Since when the condition holds; it fires when it has held for as long as the rule says.
    since       timestamptz not null default clock_timestamp(),
    fired_at    timestamptz,
    resolved_at timestamptz,
    constraint alert_resolved_had_fired check (resolved_at is null or fired_at is not null)
);

-- At most one open period each, whoever judges: the second one to see it finds it.
create unique index alert_open on postrider.alert (rule, subject) where resolved_at is null;
create index alert_resolved on postrider.alert (resolved_at) where resolved_at is not null;

alter table postrider.leader add column done_at timestamptz;
update postrider.leader set done_at = ran_at;
comment on column postrider.leader.done_at is 'When the task last ended well; earlier than ran_at: the last run ended badly.';
