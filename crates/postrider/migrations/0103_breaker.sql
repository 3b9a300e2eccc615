-- What each process thinks of each outside dependency; written on transitions only, for people to see.
create table postrider.breaker (
    dependency text        not null check (octet_length(dependency) between 1 and 100),
    process    uuid        not null,
    state      text        not null check (state in ('closed', 'open', 'half_open')),
    failures   bigint      not null check (failures >= 0),
    open_until timestamptz,
    changed_at timestamptz not null default clock_timestamp(),
    primary key (dependency, process),
    constraint breaker_open_exactly_until check ((state = 'open') = (open_until is not null))
);

comment on table postrider.breaker is 'Circuit breakers by dependency and process. The machine itself lives in the process.';
