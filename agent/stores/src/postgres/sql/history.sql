-- The past of each resource, for people who ask later.

-- Keeps changes, each at most once, 50 of each resource.
create or replace function tenure.record(
    p_tenants text[], p_kinds text[], p_names text[], p_claims uuid[], p_whats text[], p_agos bigint[], p_entries text[]
) returns void language plpgsql volatile
set search_path = pg_catalog, pg_temp as $$
declare
    t bigint;
    e record;
begin
    -- Two agents may tell of the same change.
    perform pg_advisory_xact_lock(hashtext('tenure.history'));
    -- In whole ms: changes that two agents tell of within one keep the order in which they were told.
    t := tenure.clock() / 1000 * 1000;
    for e in select b.* from unnest(p_tenants, p_kinds, p_names, p_claims, p_whats, p_agos, p_entries)
        with ordinality as b (tenant, kind, name, claim, what, ago, entry, number) order by b.number
    loop
        continue when exists (select from tenure.history h
            where h.tenant = e.tenant and h.kind = e.kind and h.name = e.name
            and h.claim = e.claim and h.what = e.what);
        insert into tenure.history (tenant, kind, name, claim, what, at, entry)
            values (e.tenant, e.kind, e.name, e.claim, e.what, t - e.ago, e.entry);
        delete from tenure.history h where h.place in (
            select o.place from tenure.history o
                where o.tenant = e.tenant and o.kind = e.kind and o.name = e.name
                order by o.at desc, o.place desc offset 50
        );
    end loop;
end $$;

-- The last changes of a resource, newest first, and how long ago each was. None is older than a week.
create or replace function tenure.history(p_tenant text, p_kind text, p_name text)
returns table (entry text, ago bigint) language plpgsql volatile
set search_path = pg_catalog, pg_temp as $$
declare
    t bigint := tenure.clock();
begin
    return query select h.entry, greatest(t - h.at, 0) from tenure.history h
        where h.tenant = p_tenant and h.kind = p_kind and h.name = p_name and h.at > t - 604800000000
        order by h.at desc, h.place desc;
end $$;
