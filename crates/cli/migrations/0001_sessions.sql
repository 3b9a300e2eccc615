-- Login sessions of the console. Every process that serves the console reads them here, so a session is valid, and ends, in
-- all of them.
create table console.session (
    -- Hash of the secret in the browser's cookie: reading this table does not let anyone take over a session.
    id          bytea primary key check (octet_length(id) = 32),
    -- Name of the token, for people.
    token       text not null,
    -- Fingerprint of the configured token; the session ends when that token is removed.
    fingerprint bytea not null check (octet_length(fingerprint) = 32),
    created_at  timestamptz not null default now(),
    expires_at  timestamptz not null
);
create index session_expires on console.session (expires_at);
