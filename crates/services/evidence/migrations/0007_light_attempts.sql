-- An attempt writes its artifact twice: when it is held and when its result is recorded. Neither touches an index any more
-- unless a retry follows, and each checks less.

-- "Has every artifact been tried?" is asked of the rows: one is PENDING until all of its artifacts were.
drop index evidence.idx_artifact_untried;
create index idx_row_pending on evidence.file_job_row (file_job_id) where evidence_status = 'PENDING';

-- Room for a second copy of every artifact on its page: only then does holding them all touch no index.
alter table evidence.file_job_artifact set (fillfactor = 45);

-- The same digests as before, without a regular expression.
alter table evidence.file_job_artifact drop constraint file_job_artifact_sha256_check;
alter table evidence.file_job_artifact add constraint file_job_artifact_sha256_check
    check (octet_length(sha256) = 64 and translate(sha256, '0123456789abcdef', '') = '');
