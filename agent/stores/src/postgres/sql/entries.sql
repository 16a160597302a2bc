-- Entries to what operations use, and who may call what. Comes after all other functions.

create or replace function tenure.read_clock() returns bigint language sql volatile
set search_path = pg_catalog, pg_temp as $$
    select tenure.clock()
$$;

-- Passes news of a principal on to the gateways.
create or replace function tenure.relay(p_principal text, p_news text) returns void language sql volatile
set search_path = pg_catalog, pg_temp as $$
    select tenure.tell(json_build_array('relayed', p_principal, p_news))
$$;

-- Nobody but their owner, and the roles that were given the schema to use: also what this version has added.
revoke create on schema tenure from public;
revoke execute on all functions in schema tenure from public;
do $$
declare
    v_role text;
begin
    for v_role in
        select distinct r.rolname from pg_namespace n, aclexplode(n.nspacl) a join pg_roles r on r.oid = a.grantee
            where n.nspname = 'tenure' and a.privilege_type = 'USAGE' and a.grantee <> n.nspowner
    loop
        execute format('grant execute on all functions in schema tenure to %I', v_role);
    end loop;
end $$;
