-- What several operations use. Made anew by every version of the agent that changes it.
--
-- A function in SQL is one expression, which becomes part of whatever calls it. One that runs statements is in PL/pgSQL,
-- which keeps their plans: in SQL, each transaction would plan them anew.
--
-- Agents call some of the functions, the entries, and those call the others. An entry has a `search_path` of its own,
-- which holds for all that it calls: otherwise another role that may create functions or operators in the database would
-- have its own called in the place of Postgres's, with the rights of the agent. The others have none, since a function
-- with settings is not made part of its caller, and each call of it takes 10 µs more.

-- The server's clock. Never now(), which is the beginning of the transaction: it may have waited for a lock since.
create or replace function tenure.clock() returns bigint language sql volatile as $$
    select (extract(epoch from clock_timestamp()) * 1000000)::bigint
$$;

create or replace function tenure.span(p_us bigint) returns json language sql stable as $$
    select json_build_object('secs', greatest(p_us, 0) / 1000000, 'nanos', greatest(p_us, 0) % 1000000 * 1000)
$$;

-- Told at the commit, each text once. Of what is too long for a notification it is only said that there is something.
create or replace function tenure.tell(p_news json) returns void language sql volatile as $$
    select pg_notify('tenure', case when octet_length(p_news::text) < 8000 then p_news::text else '["everything"]' end)
$$;

create or replace function tenure.tell_changed(r tenure.resource) returns void language sql volatile as $$
    select tenure.tell(json_build_array('changed', r.tenant, r.kind, r.name))
$$;

-- Has tokens go on after that one and after the clock, which is past all that was granted unless it was set back: then a
-- million more are left out, since others take tokens meanwhile.
create or replace function tenure.skip_tokens(p_past bigint) returns void language plpgsql volatile as $$
begin
    perform setval('tenure.token', case when tenure.clock() > p_past then tenure.clock() else p_past + 1000000 end);
end $$;

-- Raises tokens above any that the agent has seen: a server that lost its last commits would repeat some. Comes before a
-- lock of a routing table, in every operation that grants: two that wait for both would wait for each other.
create or replace function tenure.raise_tokens(p_floor bigint) returns void language plpgsql volatile as $$
begin
    if (select last_value from tenure.token) < p_floor then
        perform 1 from tenure.about for update;
        -- Another call may have been here meanwhile.
        if (select last_value from tenure.token) < p_floor then
            perform tenure.skip_tokens(p_floor);
        end if;
    end if;
end $$;

-- Locks a resource. Its row is there afterwards.
create or replace function tenure.occupy(p_tenant text, p_kind text, p_name text)
returns tenure.resource language plpgsql volatile as $$
declare
    r tenure.resource;
begin
    loop
        select * into r from tenure.resource
            where tenant = p_tenant and kind = p_kind and name = p_name for update;
        if found then return r; end if;
        insert into tenure.resource (tenant, kind, name) values (p_tenant, p_kind, p_name)
            on conflict do nothing returning * into r;
        if found then return r; end if;
    end loop;
end $$;

-- True if nobody has it or waits for it. By the first entry of an index: if few resources have most claims, `exists` is
-- answered by reading the whole table.
create or replace function tenure.is_free(p_resource bigint) returns boolean language plpgsql volatile as $$
begin
    return (select min(due) is null from tenure.claim where resource = p_resource);
end $$;

-- Forgets a resource, and its limit, with its last claim.
create or replace function tenure.vacate(r tenure.resource) returns void language plpgsql volatile as $$
begin
    delete from tenure.resource where id = r.id and (select min(due) is null from tenure.claim where resource = r.id);
end $$;

-- Marks a claim as ended, for a minute. The first reason stays, but expiry gives way.
create or replace function tenure.mark(p_claim uuid, p_reason text, p_words text, t bigint)
returns void language plpgsql volatile as $$
begin
    insert into tenure.mark as m (claim, reason, words, until) values (p_claim, p_reason, p_words, t + 60000000)
    on conflict (claim) do update set
        reason = case when m.until > t and m.reason <> 'Expired' then m.reason else excluded.reason end,
        words = case when m.until > t and m.reason <> 'Expired' then m.words else excluded.words end,
        until = excluded.until;
end $$;

create or replace function tenure.retire(c tenure.claim, p_reason text, p_words text, t bigint)
returns void language plpgsql volatile as $$
begin
    delete from tenure.claim where id = c.id;
    perform tenure.mark(c.id, p_reason, p_words, t);
end $$;

-- The next version of a routing table. Begins with the clock in ms, past whatever a lost table had.
create or replace function tenure.bump_routes(p_tenant text) returns bigint language plpgsql volatile as $$
declare
    v_version bigint;
begin
    insert into tenure.routes as r (tenant, version) values (p_tenant, tenure.clock() / 1000)
        on conflict (tenant) do update set version = r.version + 1 returning version into v_version;
    return v_version;
end $$;

create or replace function tenure.route_changed(r tenure.resource, p_claim uuid)
returns void language plpgsql volatile as $$
begin
    if r.kind = 'lease' then
        update tenure.claim set route_version = tenure.bump_routes(r.tenant) where id = p_claim;
    end if;
end $$;

-- Until when nobody but its former session is granted what a claim had.
create or replace function tenure.grace_end(c tenure.claim) returns bigint language sql immutable as $$
    select coalesce(c.unconfirmed_until, c.until + c.grace)
$$;

-- The first of those who hold a resource. A semaphore's ends for nobody, and is not locked: its beats would be late
-- while others claim.
create or replace function tenure.holder(r tenure.resource) returns tenure.claim language plpgsql volatile as $$
declare
    h tenure.claim;
begin
    if r.permits is null then
        select * into h from tenure.claim where resource = r.id and token is not null order by token limit 1 for update;
    else
        select * into h from tenure.claim where resource = r.id and token is not null order by token limit 1;
    end if;
    return h;
end $$;

create or replace function tenure.has_room(r tenure.resource) returns boolean language plpgsql volatile as $$
begin
    return (select count(*) < coalesce(r.permits, 1) from tenure.claim where resource = r.id and token is not null);
end $$;

-- Why an exclusive holder ends for the sake of a claim; null if it stays.
create or replace function tenure.fate(r tenure.resource, h tenure.claim, p_session uuid, p_priority integer)
returns text language sql immutable as $$
    select case
        when r.kind = 'master' and p_priority > h.priority and h.session <> p_session then 'Preempted'
        when r.kind = 'lease' and h.grace_until is not null and h.session = p_session then 'Expired'
    end
$$;

-- A holder ends for the sake of another claim.
create or replace function tenure.make_way(
    r tenure.resource, h tenure.claim, p_reason text,
    p_session uuid, p_host text, p_name text, p_token bigint, t bigint
) returns void language plpgsql volatile as $$
begin
    perform tenure.retire(h, p_reason, null, t);
    if p_reason <> 'Expired' then
        perform tenure.tell(json_build_array('lost', h.id));
    end if;
    if p_reason = 'Preempted' then
        perform tenure.tell(json_build_array('message', r.tenant, r.name, h.session, json_build_object(
            'type', 'MasterPreempted', 'project', r.name, 'token', p_token,
            'by', json_build_object('session', p_session, 'name', p_name, 'host', p_host)
        )));
    end if;
end $$;

-- The most claims that one look of upkeep, or one part of a revocation, ends, grants or puts off. One call for all would
-- run into the statement's deadline, and begin again from the start.
create or replace function tenure.steps_max() returns integer language sql immutable as $$
    select 64
$$;

-- The same of a call for something else, whose connection carries the calls of others: a step takes 0.3 ms. Upkeep comes
-- to the rest.
create or replace function tenure.steps_aside() returns integer language sql immutable as $$
    select 8
$$;

-- Grants what is free to whoever is next and alive, in so many steps at most. Answers how many are left.
create or replace function tenure.grant_heads(r tenure.resource, t bigint, p_steps integer)
returns integer language plpgsql volatile as $$
declare
    w tenure.claim;
    h tenure.claim;
    v_reason text;
    v_token bigint;
    v_until bigint;
    v_version bigint;
    v_left bigint := tenure.quarantine_left(t);
begin
    if v_left > 0 then
        -- Lost grants may still be valid. Upkeep goes on with it.
        update tenure.claim set due = t + v_left where due > t + v_left and id = (
            select id from tenure.claim where resource = r.id and token is null order by priority desc, place limit 1
        );
        return p_steps;
    end if;
    loop
        select * into w from tenure.claim where resource = r.id and token is null
            order by priority desc, place limit 1 for update;
        exit when not found;
        h := null;
        if not tenure.has_room(r) then
            exit when r.permits is not null;
            h := tenure.holder(r);
            if r.kind = 'lease' then
                select * into w from tenure.claim
                    where resource = r.id and token is null and session = h.session
                    order by priority desc, place limit 1 for update;
                exit when not found;
            end if;
            v_reason := tenure.fate(r, h, w.session, w.priority);
            exit when v_reason is null;
        end if;
        if p_steps <= 0 then
            -- Upkeep goes on with it.
            update tenure.claim set due = least(due, t) where id = w.id;
            exit;
        end if;
        p_steps := p_steps - 1;
        if w.until <= t then
            perform tenure.retire(w, 'Expired', null, t);
            perform tenure.tell(json_build_array('lost', w.id));
            perform tenure.tell_changed(r);
            continue;
        end if;
        v_token := nextval('tenure.token');
        if h.id is not null then
            perform tenure.make_way(r, h, v_reason, w.session, w.host, w.name, v_token, t);
        end if;
        -- It is kept for five seconds, and then for another waiter, unless a beat confirms it.
        v_until := t + least(w.ttl, 5000000);
        v_version := case when r.kind = 'lease' then tenure.bump_routes(r.tenant) end;
        update tenure.claim set
            token = v_token, since = t, until = v_until, due = least(due, v_until), route_version = v_version,
            unconfirmed_until = greatest(coalesce(h.grace_until, v_until), v_until)
            where id = w.id;
        perform tenure.tell(json_build_array('granted', w.id, v_token, r.permits, t, v_until - t));
        perform tenure.tell_changed(r);
        -- Whoever waits still has no greater priority than an exclusive holder that was first.
        exit when r.permits is null;
    end loop;
    return p_steps;
end $$;

-- Ends a claim, frees what it held, and gives that to whoever waits. Answers how many steps are left.
create or replace function tenure.end_claim(
    r tenure.resource, c tenure.claim, p_reason text, p_words text, t bigint, p_steps integer
) returns integer language plpgsql volatile as $$
declare
    v_left integer;
begin
    perform tenure.retire(c, p_reason, p_words, t);
    if p_reason <> 'Released' then
        perform tenure.tell(json_build_array('lost', c.id));
    end if;
    if r.kind = 'lease' and c.token is not null then
        perform tenure.bump_routes(r.tenant);
    end if;
    v_left := tenure.grant_heads(r, t, p_steps);
    if v_left = p_steps then
        perform tenure.tell_changed(r);
    end if;
    if r.kind = 'master' and c.token is not null and (tenure.holder(r)).id is null then
        perform tenure.tell(json_build_array('message', r.tenant, r.name, null, json_build_object(
            'type', 'master_released', 'project', r.name,
            'session', c.session, 'name', c.name, 'host', c.host
        )));
    end if;
    return v_left;
end $$;

-- Ends what ran out of a locked resource, in so many steps at most. Answers how many are left. First in every operation
-- that ends or grants.
create or replace function tenure.catch_up(r tenure.resource, p_floor bigint, t bigint, p_steps integer)
returns integer language plpgsql volatile as $$
declare
    v_claim uuid;
    c tenure.claim;
begin
    perform tenure.raise_tokens(p_floor);
    if not exists (select from tenure.claim where resource = r.id and due <= t) then
        return p_steps;
    end if;
    for v_claim in
        -- In the order in which they ran out; within one ms in that of every store. Holders are among them whoever has
        -- waited for longer, since a claim finds no room beside them.
        select id from (
            (select id, until, grace_until from tenure.claim
                where resource = r.id and token is not null and due <= t order by token limit p_steps)
            union
            (select id, until, grace_until from tenure.claim
                where resource = r.id and due <= t order by due limit p_steps)
        ) d order by coalesce(grace_until, until) / 1000, id
    loop
        -- An earlier step may have granted or ended it. One that somebody has locked keeps nobody from the others.
        select * into c from tenure.claim where id = v_claim and due <= t for update skip locked;
        continue when not found;
        p_steps := p_steps - 1;
        if coalesce(c.grace_until, c.until) > t then
            update tenure.claim set due = coalesce(c.grace_until, c.until) where id = c.id;
            if c.token is null then
                -- A call that had no steps left may have left it to this one.
                p_steps := tenure.grant_heads(r, t, p_steps);
            end if;
        elsif c.token is not null and t < tenure.grace_end(c) then
            update tenure.claim set grace_until = tenure.grace_end(c), due = tenure.grace_end(c) where id = c.id;
            perform tenure.route_changed(r, c.id);
            perform tenure.tell_changed(r);
            -- Its session may stand in the queue.
            p_steps := tenure.grant_heads(r, t, p_steps);
        else
            p_steps := tenure.end_claim(r, c, 'Expired', null, t, p_steps);
        end if;
    end loop;
    return p_steps;
end $$;

-- For how long nobody has renewed a claim that is granted.
create or replace function tenure.unbeaten(c tenure.claim, t bigint) returns bigint language plpgsql volatile as $$
begin
    return greatest(t - greatest(c.renewed, c.since), 0);
end $$;

create or replace function tenure.position(c tenure.claim) returns bigint language plpgsql volatile as $$
begin
    return (
        select count(*) from tenure.claim where resource = c.resource and token is null and priority > c.priority
    ) + (
        select count(*) from tenure.claim
            where resource = c.resource and token is null and priority = c.priority and place <= c.place
    );
end $$;

create or replace function tenure.entry(c tenure.claim, t bigint) returns json language sql stable as $$
    select json_build_object(
        'claim', c.id,
        'owner', json_build_object('session', c.session, 'host', c.host, 'name', c.name),
        'token', coalesce(c.token, 0),
        'since', tenure.span(t - c.since)
    )
$$;
