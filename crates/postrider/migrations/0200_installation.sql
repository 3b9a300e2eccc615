-- Who we are: message ids are made of this and of the item's number, so that two installations never mint the same one.
create table postrider.installation (
    only_one   boolean     primary key default true check (only_one),
    id         uuid        not null default gen_random_uuid(),
    created_at timestamptz not null default clock_timestamp()
);
insert into postrider.installation default values;

comment on table postrider.installation is 'One row. Give a copy of the database that lives on beside the original a new id.';
