-- Who gets which topic. Rows are durable: a message counts as routed if and only if somebody subscribed to its topic,
-- whether or not that somebody runs just now.
create table postrider.subscription (
    topic          text        not null check (topic ~ '^[A-Za-z0-9][A-Za-z0-9._:/-]{0,199}$'),
    consumer_group text        not null check (consumer_group ~ '^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$'),
    since          timestamptz not null default clock_timestamp(),
    primary key (topic, consumer_group)
);

-- For migrations: select postrider.subscribe('payment.requested', 'wallet'). True if it is new.
create function postrider.subscribe(topic text, consumer_group text) returns boolean language plpgsql as $$
#variable_conflict use_column
begin
    insert into postrider.subscription (topic, consumer_group)
    values (subscribe.topic, subscribe.consumer_group)
    on conflict do nothing;
    return found;
end
$$;

-- The group gets no more of this topic; what was delivered to it stays. True if there was such a subscription.
create function postrider.unsubscribe(topic text, consumer_group text) returns boolean language plpgsql as $$
#variable_conflict use_column
begin
    delete from postrider.subscription s
    where s.topic = unsubscribe.topic and s.consumer_group = unsubscribe.consumer_group;
    return found;
end
$$;
