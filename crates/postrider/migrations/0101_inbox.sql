-- Which messages a consumer has taken in; written in the transaction of the effect.
create table postrider.inbox (
    consumer    text collate "C" not null check (octet_length(consumer) between 1 and 100),
    message_id  text collate "C" not null check (octet_length(message_id) between 1 and 255),
    received_at timestamptz not null default clock_timestamp(),
    primary key (consumer, message_id)
);

-- Retention deletes the oldest first.
create index inbox_received_at on postrider.inbox (received_at);

comment on table postrider.inbox is 'Message ids that were handled, so that a redelivery has no second effect.';
