-- The bundled source: the constituents of three indexes that do not exist, for every day of 2023 and 2024, as of the
-- close and as of the adjusted close. The same question always has the same answer; any other key has none.
create function exports.sample_constituents(index_key text, effective_date date, asof_indicator text)
returns table (index_key text, effective_date date, asof_indicator text, rank integer, constituent text,
               shares bigint, price numeric(12, 4), currency text)
language sql immutable parallel safe as $$
    select $1, $2, $3, n, $1 || '-' || lpad(n::text, 4, '0'),
           1000 + (n * 7919 + day * 31) % 90000,
           ((500 + (n * 104729 + day * 613 + key * 17) % 99000) * case $3 when 'CLS' then 100 else 97 end)::numeric(12, 4) / 10000,
           (array['EUR', 'USD', 'GBP', 'JPY'])[1 + n % 4]
    from (select ascii($1) as key, $2 - date '2023-01-01' as day) asked,
         generate_series(1, 100 + asked.key % 20) n
    where $1 in ('ABC', 'DEF', 'GHI') and $2 between date '2023-01-01' and date '2024-12-31' and $3 in ('CLS', 'ADJCLS')
$$;
