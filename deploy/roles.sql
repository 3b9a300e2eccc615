-- Least privilege: three roles, so that what runs day and night can't change the schema, and who looks can't change data.
--
--   postrider_owner    owns every schema; for `postrider migrate` alone
--   postrider_runtime  reads and writes rows; for `postrider serve` with database.migrate = false
--   postrider_reader   reads; for people, reports and `postrider doctor`
--
-- Run it in Postrider's database as a superuser (or a role that may create roles and owns the database), before the first
-- migration and again after each: it changes nothing that is as it should be. Give the roles passwords or certificates:
--
--   psql "$ADMIN_URL" -v ON_ERROR_STOP=1 -f deploy/roles.sql
--   psql "$ADMIN_URL" -c "alter role postrider_runtime password '…'"
--
-- A wallet with a database of its own needs the same there.

do $$
declare
    wanted text;
    found  text;
begin
    foreach wanted in array array['postrider_owner', 'postrider_runtime', 'postrider_reader'] loop
        if not exists (select from pg_roles where rolname = wanted) then
            execute format('create role %I login nosuperuser nocreatedb nocreaterole noinherit', wanted);
        end if;
    end loop;

    -- Nobody else gets in, and only the owner makes schemas.
    execute format('revoke all on database %I from public', current_database());
    execute format('grant connect, create on database %I to postrider_owner', current_database());
    execute format('grant connect on database %I to postrider_runtime, postrider_reader', current_database());
    revoke all on schema public from public;

    -- What the owner will make.
    grant postrider_owner to current_user;
    alter default privileges for role postrider_owner
        grant usage on schemas to postrider_runtime, postrider_reader;
    alter default privileges for role postrider_owner
        grant select, insert, update, delete on tables to postrider_runtime;
    alter default privileges for role postrider_owner grant usage, select on sequences to postrider_runtime;
    alter default privileges for role postrider_owner grant execute on functions to postrider_runtime;
    alter default privileges for role postrider_owner grant select on tables to postrider_reader;

    -- What the owner has made already.
    for found in
        select nspname from pg_namespace n join pg_roles r on r.oid = n.nspowner where r.rolname = 'postrider_owner'
    loop
        execute format('grant usage on schema %I to postrider_runtime, postrider_reader', found);
        execute format('grant select, insert, update, delete on all tables in schema %I to postrider_runtime', found);
        execute format('grant usage, select on all sequences in schema %I to postrider_runtime', found);
        execute format('grant execute on all functions in schema %I to postrider_runtime', found);
        execute format('grant select on all tables in schema %I to postrider_reader', found);
    end loop;

    -- What is written once: which migrations ran, and who did what.
    if to_regclass('postrider.schema_migration') is not null then
        revoke insert, update, delete on postrider.schema_migration from postrider_runtime;
        revoke update, delete on postrider.audit from postrider_runtime;
    end if;
end
$$;
