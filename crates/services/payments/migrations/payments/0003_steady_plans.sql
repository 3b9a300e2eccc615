-- What rows that wait look like, for a server that has never looked: see the engine's migration 0306.

insert into payments.outbox (id, uuid, payload) overriding system value
select -n, gen_random_uuid(), '{}' from generate_series(1, 300) n;
analyze payments.outbox;
delete from payments.outbox where id < 0;
