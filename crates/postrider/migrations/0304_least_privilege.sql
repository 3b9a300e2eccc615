-- A role that only reads and writes rows can keep the log: its segments are tables, so the owner lends its rights for
-- turning and dropping them, and for nothing else. Nobody may do so by default.
alter function postrider.turn_segment(interval) security definer set search_path = pg_catalog, pg_temp;
alter function postrider.drop_segments(interval) security definer set search_path = pg_catalog, pg_temp;
revoke execute on function postrider.turn_segment(interval), postrider.drop_segments(interval) from public;
