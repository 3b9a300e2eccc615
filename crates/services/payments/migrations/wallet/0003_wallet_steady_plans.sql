-- What rows that wait look like, for a server that has never looked: see the engine's migration 0306.

insert into wallet.outbox (id, uuid, outcome) overriding system value
select -n, gen_random_uuid(), 'SUCCEED' from generate_series(1, 300) n;
analyze wallet.outbox;
delete from wallet.outbox where id < 0;
