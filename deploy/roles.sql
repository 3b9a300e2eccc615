-- Least privilege: three roles, so that the running server can't change the schema and readers can't change data.
--
--   postrider_owner    owns every schema; for `postrider migrate` alone
--   postrider_runtime  reads and writes rows; for `postrider serve` with database.migrate = false
--   postrider_reader   reads; for people, reports and `postrider doctor`
--
-- Run it in Postrider's database as a superuser (or a role that may create roles and owns the database), before the first
-- migration and again after each; it is idempotent. Give the roles passwords or certificates:
--
--   psql "$ADMIN_URL" -v ON_ERROR_STOP=1 -f deploy/roles.sql
--   psql "$ADMIN_URL" -c "alter role postrider_runtime password '…'"
--
-- A wallet with a database of its own needs the same roles there.

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

    -- Only these roles may connect, and only the owner may create schemas.
    execute format('revoke all on database %I from public', current_database());
    execute format('grant connect, create on database %I to postrider_owner', current_database());
    execute format('grant connect on database %I to postrider_runtime, postrider_reader', current_database());
    revoke all on schema public from public;

    -- Privileges on objects that the owner will create.
    grant postrider_owner to current_user;
    alter default privileges for role postrider_owner
        grant usage on schemas to postrider_runtime, postrider_reader;
    alter default privileges for role postrider_owner
        grant select, insert, update, delete on tables to postrider_runtime;
    alter default privileges for role postrider_owner grant usage, select on sequences to postrider_runtime;
    alter default privileges for role postrider_owner grant execute on functions to postrider_runtime;
    alter default privileges for role postrider_owner grant select on tables to postrider_reader;

    -- Privileges on existing objects of the owner.
    for found in
        select nspname from pg_namespace n join pg_roles r on r.oid = n.nspowner where r.rolname = 'postrider_owner'
    loop
        execute format('grant usage on schema %I to postrider_runtime, postrider_reader', found);
        execute format('grant select, insert, update, delete on all tables in schema %I to postrider_runtime', found);
        execute format('grant usage, select on all sequences in schema %I to postrider_runtime', found);
        execute format('grant execute on all functions in schema %I to postrider_runtime', found);
        execute format('grant select on all tables in schema %I to postrider_reader', found);
    end loop;

    -- Append-only records: applied migrations and the audit.
    if to_regclass('postrider.schema_migration') is not null then
        revoke insert, update, delete on postrider.schema_migration from postrider_runtime;
        revoke update, delete on postrider.audit from postrider_runtime;
    end if;
end
$$;
