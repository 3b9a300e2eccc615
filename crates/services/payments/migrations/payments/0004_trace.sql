-- The W3C trace context of whoever asked: with the request for as long as it is known, with its message to go along.

alter table payments.request add column trace text;
alter table payments.outbox add column trace text, add column tracestate text;

-- Payments by trace id; those without one cost nothing.
create index request_trace on payments.request (substr(trace, 4, 32), seq) where trace is not null;
