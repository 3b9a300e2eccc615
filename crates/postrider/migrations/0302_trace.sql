-- Messages by the trace that they belong to; those without one cost nothing.
create index outbox_trace on postrider.outbox (substr(trace, 4, 32)) where trace is not null;
create index message_trace on postrider.message (substr(trace, 4, 32)) where trace is not null;
