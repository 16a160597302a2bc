-- A claim: granted, queued or refused. Answers as `ClaimAnswer` is written in JSON.

create or replace function tenure.held(p_token bigint, p_limit bigint, p_was bigint)
returns json language sql stable as $$
    select json_build_object('Held', json_build_object('token', p_token, 'limit', p_limit, 'limit_was', p_was))
$$;

create or replace function tenure.waiting(p_position bigint, p_limit bigint, p_was bigint)
returns json language sql stable as $$
    select json_build_object('Waiting',
        json_build_object('position', p_position, 'limit', p_limit, 'limit_was', p_was))
$$;

-- A beat of a claim whose resource is locked.
create or replace function tenure.beat_claim(r tenure.resource, c tenure.claim, p_ttl bigint, t bigint)
returns void language plpgsql volatile as $$
begin
    -- One that comes out of its grace ends sooner than that.
    update tenure.claim set
        until = greatest(until, t + p_ttl), due = least(due, greatest(until, t + p_ttl)),
        unconfirmed_until = null, grace_until = null, renewed = t, renewed_for = p_ttl
        where id = c.id;
    if c.grace_until is not null then
        perform tenure.route_changed(r, c.id);
        perform tenure.tell_changed(r);
    end if;
end $$;

-- The claim was made before.
create or replace function tenure.claim_again(
    r tenure.resource, c tenure.claim, p_ttl bigint, p_attributes text, t bigint
) returns json language plpgsql volatile as $$
begin
    if c.resource <> r.id then
        return '{"Gone":"Conflict"}';
    end if;
    perform tenure.beat_claim(r, c, p_ttl, t);
    if p_attributes is distinct from c.attributes then
        update tenure.claim set attributes = p_attributes where id = c.id;
        if c.token is not null then
            perform tenure.route_changed(r, c.id);
            perform tenure.tell_changed(r);
        end if;
    end if;
    if c.token is not null then
        return tenure.held(c.token, r.permits, null);
    end if;
    return tenure.waiting(tenure.position(c), r.permits, null);
end $$;

-- It is taken. Names the holder, or the waiter that is about to be granted.
create or replace function tenure.contended(
    r tenure.resource, p_session uuid, p_was bigint, t bigint
) returns json language plpgsql volatile as $$
declare
    h tenure.claim := tenure.holder(r);
    v_free_in json;
begin
    if h.id is not null then
        v_free_in := tenure.span(case
            when r.permits is not null then coalesce(h.grace_until, h.until) - t
            when h.session = p_session then h.until - t
            else tenure.grace_end(h) - t
        end);
    elsif r.permits is null then
        select * into h from tenure.claim where resource = r.id and token is null
            order by priority desc, place limit 1;
    end if;
    return json_build_object('Contended', json_build_object(
        'holder', case when h.id is not null then tenure.entry(h, t) end,
        'free_in', v_free_in, 'limit', r.permits, 'limit_was', p_was
    ));
end $$;

-- Why the present holder ends for the sake of a claim that does not wait, `Stays` if it does not end, and null if
-- there is none in the way. Nobody who waits is overtaken.
create or replace function tenure.incumbent(
    r tenure.resource, h tenure.claim, p_session uuid, p_priority integer, p_from uuid, p_unbeaten bigint, t bigint
) returns text language plpgsql volatile as $$
declare
    v_first integer;
    v_is_next boolean;
    v_reason text;
begin
    select priority into v_first from tenure.claim where resource = r.id and token is null
        order by priority desc, place limit 1;
    v_is_next := v_first is null or p_priority > v_first;
    if tenure.has_room(r) then
        return case when not v_is_next then 'Stays' end;
    end if;
    if r.permits is not null then
        return 'Stays';
    end if;
    if r.kind = 'lease' and h.id = p_from and tenure.unbeaten(h, t) >= p_unbeaten then
        return 'Conflict';
    end if;
    v_reason := tenure.fate(r, h, p_session, p_priority);
    if v_reason is null or (v_reason = 'Preempted' and not v_is_next) then
        return 'Stays';
    end if;
    return v_reason;
end $$;

-- `p_permits` is for semaphores, which keep the limit in force with `p_keeps`, and where it is null that of other
-- principals, whose ids have other ends: such a claim is contended; `p_from` and `p_unbeaten` take a lease
-- over. `p_floor` is the greatest token that the agent has seen.
create or replace function tenure.claim(
    p_id uuid, p_tenant text, p_kind text, p_name text, p_session uuid, p_host text, p_owner text, p_ttl bigint,
    p_enqueue boolean, p_priority integer, p_permits bigint, p_keeps boolean, p_grace bigint, p_attributes text,
    p_from uuid, p_unbeaten bigint, p_floor bigint
) returns json language plpgsql volatile
set search_path = pg_catalog, pg_temp as $$
declare
    r tenure.resource := tenure.occupy(p_tenant, p_kind, p_name);
    t bigint := tenure.clock();
    c tenure.claim;
    h tenure.claim;
    v_was bigint;
    v_reason text;
    v_is_free boolean;
    v_answer json;
    v_steps integer := tenure.catch_up(r, p_floor, t, tenure.steps_aside());
    v_left bigint := tenure.quarantine_left(t);
begin
    select * into c from tenure.claim where id = p_id;
    if found then
        v_answer := tenure.claim_again(r, c, p_ttl, p_attributes, t);
        perform tenure.vacate(r);
        return v_answer;
    end if;
    select reason into v_reason from tenure.mark where claim = p_id and until > t;
    -- Whoever waited and was thought dead may queue again, at the end. The mark stays: this attempt may be refused.
    if v_reason <> 'Expired' then
        perform tenure.vacate(r);
        return json_build_object('Gone', v_reason);
    end if;
    v_is_free := tenure.is_free(r.id);
    if p_permits is not null then
        if v_is_free then
            r.permits := null;
        end if;
        if r.permits is null then
            r.permits := p_permits;
        elsif p_keeps is null and r.permits <> p_permits and exists (
            select from tenure.claim where resource = r.id and right(id::text, 12) <> right(p_id::text, 12)
        ) then
            v_answer := tenure.contended(r, p_session, null, t);
            perform tenure.vacate(r);
            return v_answer;
        elsif p_keeps is not true and r.permits <> p_permits then
            v_was := r.permits;
            r.permits := p_permits;
            perform tenure.tell_changed(r);
        end if;
        update tenure.resource set permits = r.permits where id = r.id and permits is distinct from r.permits;
    end if;
    v_reason := null;
    -- A limit of 0 grants nothing.
    if not v_is_free or r.permits = 0 then
        v_steps := tenure.grant_heads(r, t, v_steps);
        h := tenure.holder(r);
        v_reason := tenure.incumbent(r, h, p_session, p_priority, p_from, p_unbeaten, t);
    end if;
    if v_left > 0 then
        -- Lost grants may still be valid.
        v_reason := 'Stays';
    end if;
    if v_reason is distinct from 'Stays' then
        v_answer := tenure.grant(r, p_id, p_session, p_host, p_owner, p_ttl, p_priority, p_grace, p_attributes,
            h, v_reason, v_was, t);
    elsif p_enqueue and (select count(*) < 100000 from tenure.claim where resource = r.id and token is null) then
        insert into tenure.claim
            (id, resource, session, host, name, ttl, priority, grace, attributes, since, until, due)
            values (p_id, r.id, p_session, p_host, p_owner, p_ttl, p_priority, p_grace, p_attributes,
                t, t + p_ttl, t + p_ttl)
            returning * into c;
        perform tenure.tell_changed(r);
        if v_left > 0 then
            v_steps := tenure.grant_heads(r, t, v_steps);
        end if;
        v_answer := tenure.waiting(tenure.position(c), r.permits, v_was);
    else
        v_answer := case when v_left > 0
            then json_build_object('Quarantined', json_build_object('free_in', tenure.span(v_left)))
            else tenure.contended(r, p_session, v_was, t)
        end;
        perform tenure.vacate(r);
    end if;
    return v_answer;
end $$;

create or replace function tenure.grant(
    r tenure.resource, p_id uuid, p_session uuid, p_host text, p_owner text, p_ttl bigint, p_priority integer,
    p_grace bigint, p_attributes text, h tenure.claim, p_reason text, p_was bigint, t bigint
) returns json language plpgsql volatile as $$
declare
    v_token bigint := nextval('tenure.token');
    v_version bigint := case when r.kind = 'lease' then tenure.bump_routes(r.tenant) end;
begin
    if p_reason is not null then
        perform tenure.make_way(r, h, p_reason, p_session, p_host, p_owner, v_token, t);
    end if;
    insert into tenure.claim
        (id, resource, session, host, name, ttl, priority, grace, attributes, token, since, until, due, route_version)
        values (p_id, r.id, p_session, p_host, p_owner, p_ttl, p_priority, p_grace, p_attributes,
            v_token, t, t + p_ttl, t + p_ttl, v_version);
    perform tenure.tell_changed(r);
    return tenure.held(v_token, r.permits, p_was);
end $$;
