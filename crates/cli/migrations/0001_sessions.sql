-- Who is logged in at the console. Any process that shows it asks here, so that a session holds in all of them and ends
-- in all of them.
create table console.session (
    -- A hash of the secret in the browser's cookie: whoever reads this table can't take a session over.
    id          bytea primary key check (octet_length(id) = 32),
    -- The token's name, for people.
    token       text not null,
    -- Which configured token it was; once that is gone, so is the session.
    fingerprint bytea not null check (octet_length(fingerprint) = 32),
    created_at  timestamptz not null default now(),
    expires_at  timestamptz not null
);
create index session_expires on console.session (expires_at);
