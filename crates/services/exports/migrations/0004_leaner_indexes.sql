-- As long as the table has no statistics of its new rows, the claim index and an index with next_retry_at in it look equally
-- good for a claim, and through the other one each claim would read and sort everything that waits. As a column that is
-- merely included it answers the same questions about a job, and none of a claim's.

drop index exports.export_job_input_open;

create index export_job_input_open on exports.export_job_input (job_id) include (next_retry_at) where finished_at is null;

-- What was finished lately, by place: inputs are finished about in the order in which they came, and dead ones have an index
-- of their own. An entry in a tree for every input that is finished would be a fifth of the cost of finishing it.

drop index exports.export_job_input_finished;

create index export_job_input_finished on exports.export_job_input
    using brin (finished_at) with (pages_per_range = 32, autosummarize = on);

-- A finished input has a second entry in each of these. Pages with room for it need neither be cleared of old entries nor
-- split while inputs are finished.

alter index exports.export_job_input_id_key set (fillfactor = 50);
alter index exports.export_job_input_pkey set (fillfactor = 50);
alter index exports.export_job_input_job set (fillfactor = 50);
alter index exports.export_job_input_job_id_index_key_effective_date_asof_indic_key set (fillfactor = 50);
