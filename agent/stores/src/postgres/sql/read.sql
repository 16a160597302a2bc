-- What people and programs read. What ran out of it is ended first, in a transaction of its own: a claim would wait for
-- its lock until all was read, and with it all other calls of its connection.

create or replace function tenure.end_overdue(p_tenant text, p_kind text, p_name text, p_floor bigint)
returns void language plpgsql volatile
set search_path = pg_catalog, pg_temp as $$
declare
    r tenure.resource;
    t bigint := tenure.clock();
begin
    if exists (
        select from tenure.resource o join tenure.claim c on c.resource = o.id
            where o.tenant = p_tenant and o.kind = p_kind and o.name = p_name and c.due <= t
    ) then
        select * into r from tenure.resource where tenant = p_tenant and kind = p_kind and name = p_name for update;
        if found then
            perform tenure.catch_up(r, p_floor, tenure.clock(), tenure.steps_aside());
            perform tenure.vacate(r);
        end if;
    end if;
end $$;

-- Who holds a resource and who waits for it, as `UpstreamStanding` is written in JSON.
create or replace function tenure.standing(p_tenant text, p_kind text, p_name text, p_listed bigint)
returns json language plpgsql volatile
set search_path = pg_catalog, pg_temp as $$
declare
    r tenure.resource;
    h tenure.claim;
    t bigint := tenure.clock();
    v_answer json;
begin
    select * into r from tenure.resource where tenant = p_tenant and kind = p_kind and name = p_name;
    select * into h from tenure.claim where resource = r.id and token is not null order by token limit 1;
    select json_build_object(
        'limit', r.permits,
        'holders', (select coalesce(json_agg(tenure.entry(c, t)), '[]'::json) from (
            select * from tenure.claim where resource = r.id and token is not null order by token limit p_listed
        ) c),
        'holding', (select count(*) from tenure.claim where resource = r.id and token is not null),
        'waiters', (select coalesce(json_agg(tenure.entry(c, t)), '[]'::json) from (
            select * from tenure.claim where resource = r.id and token is null
                order by priority desc, place limit p_listed
        ) c),
        'waiting', (select count(*) from tenure.claim where resource = r.id and token is null),
        'sessions', (select coalesce(json_agg(s.name order by s.place), '[]'::json) from (
            select s.name, s.place from tenure.session s
                where p_kind = 'master' and s.tenant = p_tenant and s.project = p_name and not s.ended and s.until > t
                order by s.place limit p_listed
        ) s),
        'members', (select count(*) from tenure.session s
            where p_kind = 'master' and s.tenant = p_tenant and s.project = p_name and not s.ended and s.until > t),
        'runs_out', case when h.id is not null and r.permits is null then
            tenure.span(coalesce(h.grace_until, h.until) - t) end,
        'lease', case when h.id is not null and r.kind = 'lease' then json_build_object(
            'ttl', tenure.span(case when h.renewed > h.since then h.renewed_for else h.ttl end),
            'grace', tenure.span(h.grace), 'unbeaten', tenure.span(tenure.unbeaten(h, t))
        ) end
    ) into v_answer;
    return v_answer;
end $$;

-- A tenant's leases by name after `p_after`, or the one of that name. In one snapshot: the lines are those of the
-- version.
create or replace function tenure.routes(p_tenant text, p_name text, p_after text, p_listed bigint)
returns json language sql volatile
set search_path = pg_catalog, pg_temp as $$
    select json_build_object(
        'version', coalesce((select version from tenure.routes where tenant = p_tenant), 0),
        'total', (select count(*) from tenure.resource r
            join tenure.claim c on c.resource = r.id and c.token is not null
            where r.tenant = p_tenant and r.kind = 'lease'),
        'lines', (select coalesce(json_agg(json_build_object(
                'name', l.lease, 'host', l.host, 'holder', l.name, 'token', l.token, 'version', l.route_version,
                'in_grace', l.grace_until is not null, 'attributes', l.attributes
            ) order by l.lease), '[]'::json) from (
                select r.name as lease, c.* from tenure.resource r
                    join tenure.claim c on c.resource = r.id and c.token is not null
                    where r.tenant = p_tenant and r.kind = 'lease'
                    and (p_name is null or r.name = p_name) and (p_after is null or r.name > p_after)
                    order by r.name limit p_listed
            ) l)
    )
$$;

-- The names of all that is held or waited for, after the one with that id.
create or replace function tenure.resources(p_after bigint, p_listed bigint)
returns table (id bigint, tenant text, kind text, name text) language sql volatile
set search_path = pg_catalog, pg_temp as $$
    select id, tenant, kind, name from tenure.resource where id > p_after order by id limit p_listed
$$;

-- The projects with sessions, after that one.
create or replace function tenure.projects(p_tenant text, p_project text, p_listed bigint)
returns table (tenant text, project text) language sql volatile
set search_path = pg_catalog, pg_temp as $$
    select distinct tenant, project from tenure.session
        where not ended and until > tenure.clock() and (tenant, project) > (p_tenant, p_project)
        order by tenant, project limit p_listed
$$;

-- Which of these claims are held still, in their order.
create or replace function tenure.verify(p_claims uuid[]) returns table (is_held boolean) language sql volatile
set search_path = pg_catalog, pg_temp as $$
    select exists (
        select from tenure.claim c where c.id = b.claim and c.token is not null and c.until > tenure.clock()
    ) from unnest(p_claims) with ordinality as b (claim, number) order by b.number
$$;
