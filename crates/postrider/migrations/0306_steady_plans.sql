-- A server that has never looked at a table takes one row in two hundred for unfinished. A large first backlog is then read
-- and sorted whole for each claim, because so few rows are soon sorted. So it is shown what such a table looks like: rows
-- that wait, of which nothing remains but the statistics. They hold until the server looks for itself.

insert into postrider.outbox (id, topic, payload) overriding system value
select -n, 'first.statistics', 'null' from generate_series(1, 300) n;
analyze postrider.outbox;
delete from postrider.outbox where id < 0;

-- Its statements look up what they write by index, however many there are: planning them anew for each batch was a tenth
-- of the work. A plan that is kept must not be one for tables that are still empty.
alter function postrider.publish(uuid[], text[], text[], text[], text[], text[]) set plan_cache_mode = force_generic_plan;
alter function postrider.publish(uuid[], text[], text[], text[], text[], text[]) set enable_seqscan = off;
