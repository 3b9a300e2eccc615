-- The built-in Case API's memory: what was attached, by artifact. It is the other side's, not ours: it is written in
-- transactions of its own, as if by another company.
create table evidence.paper_evidence (
    artifact_id uuid        primary key,
    case_id     uuid        not null,
    file_name   text,
    sha256      text        not null,
    received_at timestamptz not null default clock_timestamp()
);
