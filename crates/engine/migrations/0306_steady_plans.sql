-- Plans that stay good, whatever the server knows of a table and however small it was when they were made.
--
-- A server that has never looked at a table takes one row in two hundred for unfinished. A large first backlog is then read
-- and sorted whole for each claim, because so few rows are soon sorted. So it is shown what such a table looks like: rows
-- that wait, of which nothing remains but the statistics. They hold until the server looks for itself.
--
-- And a plan that was made while a table had a handful of pages reads them all, because that is quickest; a worker keeps
-- it, and goes on to read all when a backlog has come. So those rows are wide, one to a page, and leave room behind that is
-- never given back: no table ever looks small. (Giving it back would lock everybody out for a moment, too.)

alter table postrider.outbox set (vacuum_truncate = off);
insert into postrider.outbox (id, topic, payload) overriding system value
select -n, 'first.statistics', to_json((select string_agg(md5(random()::text), '') from generate_series(1, 58)))
from generate_series(1, 120) n;
analyze postrider.outbox;
delete from postrider.outbox where id < 0;

-- Room alone: each group has its own part of the claim index, and statistics of a group that is not there would mislead.
alter table postrider.delivery set (vacuum_truncate = off);
insert into postrider.delivery (id, segment, message_id, consumer_group, topic, error_message) overriding system value
select -n, 0, gen_random_uuid(), 'first.statistics', 'first.statistics', (select string_agg(md5(random()::text), '') from generate_series(1, 58))
from generate_series(1, 120) n;
delete from postrider.delivery where id < 0;

-- Its statements look up what they write by index, however many there are: planning them anew for each batch was a tenth
-- of the work.
alter function postrider.publish(uuid[], text[], text[], text[], text[], text[]) set plan_cache_mode = force_generic_plan;
