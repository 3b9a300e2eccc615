-- Final notifications by time: how long they took lately, and which went out by force.
create index file_job_n2 on evidence.file_job (n2_sent_at) where n2_sent_at is not null;
