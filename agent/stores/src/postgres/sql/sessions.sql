-- Sessions that are announced in a project.

create or replace function tenure.tell_members(p_tenant text, p_project text)
returns void language plpgsql volatile as $$
begin
    perform tenure.tell(json_build_array('changed', p_tenant, 'master', p_project));
end $$;

create or replace function tenure.tell_ended(s tenure.session) returns void language plpgsql volatile as $$
begin
    perform tenure.tell_members(s.tenant, s.project);
    perform tenure.tell(json_build_array('message', s.tenant, s.project, null, json_build_object(
        'type', 'session_ended', 'session', s.id, 'name', s.name, 'host', s.host
    )));
end $$;

-- An instant as SPEC-032 writes it.
create or replace function tenure.iso8601(p_us bigint) returns text language sql stable as $$
    select to_char(timestamp '1970-01-01' + p_us * interval '1 microsecond', 'YYYY-MM-DD"T"HH24:MI:SS.US"+00:00"')
$$;

-- Adds a session, unless there is one with its id: locks and returns that. It may end while its lock is waited for, and
-- is then not there any more.
create or replace function tenure.add_session(n tenure.session) returns tenure.session language plpgsql volatile as $$
declare
    s tenure.session;
begin
    loop
        insert into tenure.session (id, tenant, project, name, host, surface, ttl, until, due, ended, registered)
            values (n.id, n.tenant, n.project, n.name, n.host, n.surface, n.ttl, n.until, n.due, n.ended, n.registered)
            on conflict do nothing;
        if found then return null; end if;
        select * into s from tenure.session where id = n.id for update;
        if found then return s; end if;
    end loop;
end $$;

-- Announces a session. One that was ended is not brought back by an announcement that comes late.
create or replace function tenure.announce(
    p_session uuid, p_tenant text, p_project text, p_name text, p_host text, p_surface text, p_ttl bigint
) returns void language plpgsql volatile
set search_path = pg_catalog, pg_temp as $$
declare
    s tenure.session;
    t bigint := tenure.clock();
begin
    s := tenure.add_session(row(p_session, null, p_tenant, p_project, p_name, p_host, p_surface, p_ttl, t + p_ttl,
        t + p_ttl, false, t)::tenure.session);
    if s.id is null then
        perform tenure.tell_members(p_tenant, p_project);
        return;
    end if;
    t := tenure.clock();
    if s.ended and s.until > t then
        return;
    end if;
    if not s.ended and s.until > t then
        if (s.tenant, s.project, s.name, s.host, s.surface, s.ttl)
            = (p_tenant, p_project, p_name, p_host, p_surface, p_ttl) then
            update tenure.session set until = greatest(until, t + p_ttl) where id = p_session;
            return;
        end if;
        if (s.tenant, s.project) <> (p_tenant, p_project) then
            perform tenure.tell_members(s.tenant, s.project);
        end if;
    elsif not s.ended then
        perform tenure.tell_ended(s);
    end if;
    update tenure.session set
        place = nextval(pg_get_serial_sequence('tenure.session', 'place')),
        tenant = p_tenant, project = p_project, name = p_name, host = p_host, surface = p_surface, ttl = p_ttl,
        until = t + p_ttl, due = least(due, t + p_ttl), ended = false,
        registered = case when s.ended or s.until <= t then t else s.registered end
        where id = p_session;
    perform tenure.tell_members(p_tenant, p_project);
end $$;

-- Whether the session was there. Leaves a mark for a minute.
create or replace function tenure.end_session(p_session uuid, p_tenant text, p_project text)
returns boolean language plpgsql volatile
set search_path = pg_catalog, pg_temp as $$
declare
    s tenure.session;
    t bigint := tenure.clock();
begin
    s := tenure.add_session(row(p_session, null, p_tenant, p_project, '', '', '', 0, t + 60000000, t + 60000000, true,
        null)::tenure.session);
    if s.id is null then return false; end if;
    t := tenure.clock();
    update tenure.session set ended = true, until = t + 60000000, due = least(due, t + 60000000)
        where id = p_session;
    if not s.ended then
        perform tenure.tell_ended(s);
    end if;
    return not s.ended and s.until > t;
end $$;

-- A project's master and its sessions, or those of a session's project; null without that session.
create or replace function tenure.members(p_session uuid, p_tenant text, p_project text, p_listed boolean)
returns json language plpgsql volatile
set search_path = pg_catalog, pg_temp as $$
declare
    t bigint := tenure.clock();
    h tenure.claim;
    v_sessions json;
begin
    if p_session is not null then
        select tenant, project into p_tenant, p_project from tenure.session
            where id = p_session and not ended and until > t;
        if not found then return null; end if;
    end if;
    select c.* into h from tenure.resource r join tenure.claim c on c.resource = r.id
        where r.tenant = p_tenant and r.kind = 'master' and r.name = p_project
        and c.token is not null and c.until > t
        order by c.token limit 1;
    if p_listed then
        select json_agg(json_build_object('session', s.id, 'name', s.name, 'surface', s.surface, 'host', s.host,
            'registered_at', tenure.iso8601(s.registered), 'runs_out', tenure.span(s.until - t))
            order by s.place) into v_sessions
            from tenure.session s
            where s.tenant = p_tenant and s.project = p_project and not s.ended and s.until > t;
    end if;
    return json_build_object(
        'tenant', p_tenant, 'project', p_project, 'master', h.session, 'master_claim', h.id,
        'sessions', coalesce(v_sessions, '[]'::json)
    );
end $$;
