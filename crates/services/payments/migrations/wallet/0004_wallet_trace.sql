-- The W3C trace context of the payment that a call back is about.

alter table wallet.outbox add column trace text, add column tracestate text;
