-- What operators asked to be done to many dead letters. Any process goes on with it, a piece per transaction, whoever began it:
-- what a piece changed and how far it got commit together.
create table postrider.operation (
    id          bigint      generated always as identity primary key,
    -- From here on, what dies is another death.
    created_at  timestamptz not null default clock_timestamp(),
    actor       text        not null check (actor <> ''),
    reason      text,
    action      text        not null check (action in ('redrive', 'archive')),
    filter      jsonb       not null,
    -- At most so many per second; null: as fast as it goes.
    rate        float8      check (rate > 0),
    -- At most so many in all.
    most        bigint      check (most > 0),
    -- The operator knows that what is redriven may be stale.
    confirmed   boolean     not null default false,
    -- The pace's clock: up to here its time is spent.
    paced_at    timestamptz not null default clock_timestamp(),
    -- The last dead letter that was looked at.
    reached     jsonb,
    changed     bigint      not null default 0,
    skipped     bigint      not null default 0,
    finished_at timestamptz,
    stopped_by  text,
    constraint operation_stopped_is_finished check (stopped_by is null or finished_at is not null)
);

create index operation_open on postrider.operation (id) where finished_at is null;

-- The history of one item.
create index audit_items on postrider.audit using gin (items);
