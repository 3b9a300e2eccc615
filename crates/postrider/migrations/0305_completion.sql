-- The ids of a batch are longer than what is stored as it is: compressing them was a tenth of a drain's work in the
-- server. lz4 takes next to nothing where the server has it.
do $$
begin
    alter table postrider.completion alter column ids set compression lz4;
exception when feature_not_supported then
    null;
end
$$;
