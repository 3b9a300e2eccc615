-- Enqueue from any language: psql "$DATABASE_URL" -f crates/postrider/examples/sql_from_psql.sql
-- (requires the schema: `postrider migrate`, or any program that ran the library's migrations).

begin;
-- … your own writes …
select id from postrider.enqueue('invoice.sent', '{"number": 1}');
select id from postrider.enqueue('invoice.sent', jsonb_build_object('number', 2), ordering_key => 'customer-7');
select id, duplicate from postrider.enqueue('invoice.sent', '{"number": 3}', dedupe_key => 'invoice-3');
select id, duplicate from postrider.enqueue('invoice.sent', '{"number": 3}', dedupe_key => 'invoice-3');
select id from postrider.enqueue('invoice.sent', '{"number": 4}', delay => interval '1 hour',
                                 headers => '{"tenant": "a"}',
                                 trace => '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01');
commit;

-- Waiting messages, and why they wait.
select id, topic, state, due, parked from postrider.outbox order by id;
