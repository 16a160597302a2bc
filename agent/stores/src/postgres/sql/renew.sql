-- Beats. Answers as `BeatAnswer` is written in JSON.

-- Beats of claims, at most 512, with their numbers from 1. Those without an answer want a `beat` of their own, since
-- something else must be done for them, or somebody has a lock. It waits for no lock, so that beats never wait for each
-- other, and a batch is never part of a deadlock.
--
-- The plan may be one of an empty table, which takes all of a resource's claims for few. So `coalesce` and `+ 0` keep it
-- from every index but that of the ids: the claims of a large semaphore would be read once for each beat.
create or replace function tenure.renew(
    p_claims uuid[], p_tenants text[], p_kinds text[], p_names text[], p_ttls bigint[]
) returns table (number bigint, answer json) language plpgsql volatile
set search_path = pg_catalog, pg_temp as $$
declare
    t bigint := tenure.clock();
begin
    return query
    with beat as materialized (
        select b.* from unnest(p_claims, p_tenants, p_kinds, p_names, p_ttls)
            with ordinality as b (claim, tenant, kind, name, ttl, number)
    ), wanted as materialized (
        select b.claim, b.tenant, b.kind, b.name, max(b.ttl) as ttl, array_agg(b.number) as numbers from beat b
            group by b.claim, b.tenant, b.kind, b.name
    ), queue as materialized (
        select distinct c.resource from wanted b join tenure.claim c on c.id = b.claim where coalesce(c.token, 0) = 0
    ), overdue as materialized (
        -- `due` alone is of many who have been beaten since.
        select q.resource from queue q where exists (select from tenure.claim d
            where d.resource = q.resource and d.due <= t and coalesce(d.grace_until, d.until) <= t)
    ), renewable as (
        select c.id, b.ttl, b.numbers, r.permits
            from wanted b join tenure.claim c on c.id = b.claim
            join tenure.resource r on r.id = c.resource + 0
                and b.tenant = r.tenant and b.kind = r.kind and b.name = r.name
            where c.until > t and c.grace_until is null
            and (c.token is not null or c.resource not in (select o.resource from overdue o))
            for no key update of c skip locked
    ), renewed as (
        update tenure.claim c set until = greatest(c.until, t + l.ttl), unconfirmed_until = null,
            renewed = t, renewed_for = l.ttl
            from renewable l where c.id = l.id
            returning c.id, c.resource, c.priority, c.place, c.token, l.permits, l.numbers
    ), next as (
        select c.*, lag(c.priority) over q as above, lag(c.place) over q as above_place from renewed c
            window q as (partition by c.resource, c.token is null order by c.priority desc, c.place)
    ), answered as (
        -- Who waits between two that beat is counted once, however many beat.
        select n.*, sum(
            case when n.token is not null then 0 else
                case when n.above = n.priority then 0 else (
                    select count(*) from tenure.claim w where w.resource = n.resource and w.token is null
                        and w.priority = n.above and w.place > n.above_place
                ) + (
                    select count(*) from tenure.claim w where w.resource = n.resource and w.token is null
                        and w.priority > n.priority and w.priority < coalesce(n.above::bigint, 2147483648)
                ) end + (
                    select count(*) from tenure.claim w where w.resource = n.resource and w.token is null
                        and w.priority = n.priority and w.place <= n.place
                        and w.place > case when n.above = n.priority then n.above_place else 0 end
                )
            end
        ) over (partition by n.resource, n.token is null order by n.priority desc, n.place)::bigint as position from next n
    )
    select n.number, max(n.answer)::json from (
        select b.number, null as answer from beat b union all
        select unnest(c.numbers), case when c.token is not null then
                json_build_object('Held', json_build_object('token', c.token, 'limit', c.permits))
            else json_build_object('Waiting', json_build_object('limit', c.permits, 'position', c.position))
        end::text from answered c
    ) n group by n.number;
end $$;

-- The answer to a beat of what somebody has locked.
create or replace function tenure.locked() returns json language sql immutable as $$
    select '{"Failed":"another transaction has locked its row in Postgres"}'::json
$$;

-- One beat of a claim, with all that is due. Waits so many ms for each lock.
create or replace function tenure.beat(
    p_claim uuid, p_tenant text, p_kind text, p_name text, p_ttl bigint, p_floor bigint, p_wait integer
) returns json language plpgsql volatile
set search_path = pg_catalog, pg_temp as $$
declare
    r tenure.resource;
    c tenure.claim;
    m tenure.mark;
    t bigint;
    v_answer json;
begin
    perform set_config('lock_timeout', p_wait::text, true);
    select * into r from tenure.resource where tenant = p_tenant and kind = p_kind and name = p_name for update;
    t := tenure.clock();
    if r.id is not null then
        perform tenure.catch_up(r, p_floor, t, tenure.steps_aside());
    end if;
    select * into c from tenure.claim where id = p_claim;
    if c.resource <> r.id or (c.id is not null and r.id is null) then
        v_answer := '{"Gone":"Conflict"}';
    elsif c.id is not null then
        perform tenure.beat_claim(r, c, p_ttl, t);
        if c.token is not null then
            v_answer := json_build_object('Held', json_build_object('token', c.token, 'limit', r.permits));
        else
            v_answer := json_build_object('Waiting',
                json_build_object('position', tenure.position(c), 'limit', r.permits));
        end if;
    else
        -- Claims that ended have left a mark: one without was lost by the store.
        select * into m from tenure.mark where claim = p_claim and until > t;
        if m.reason = 'Revoked' and m.words is not null then
            v_answer := json_build_object('Revoked', m.words::json);
        else
            v_answer := json_build_object('Gone', coalesce(m.reason, 'Unknown'));
        end if;
    end if;
    if r.id is not null then
        perform tenure.vacate(r);
    end if;
    return v_answer;
exception when lock_not_available then
    return tenure.locked();
end $$;

-- Beats of sessions, at most 512, with their numbers from 1. Waits for no lock.
create or replace function tenure.renew_sessions(p_sessions uuid[], p_ttls bigint[])
returns table (number bigint, answer json) language plpgsql volatile
set search_path = pg_catalog, pg_temp as $$
declare
    t bigint := tenure.clock();
begin
    return query
    with beat as (
        select b.* from unnest(p_sessions, p_ttls) with ordinality as b (session, ttl, number)
    ), renewable as (
        select s.id from tenure.session s where s.id = any (p_sessions) and not s.ended and s.until > t
            for no key update skip locked
    ), renewed as (
        update tenure.session s set until = greatest(s.until, t + b.ttl)
            from renewable l, (select b.session, max(b.ttl) as ttl from beat b group by b.session) b
            where s.id = l.id and b.session = s.id
            returning s.*
    )
    select b.number, case
            when s.id is null and exists (
                select from tenure.session l where l.id = b.session and not l.ended and l.until > t
            ) then tenure.locked()
            when s.id is null then '{"Gone":"Unknown"}'::json
            when exists (
                select from tenure.resource r join tenure.claim c on c.resource = r.id
                    where r.tenant = s.tenant and r.kind = 'master' and r.name = s.project
                    and c.token is not null and c.session = s.id and c.until > t
            ) then '{"Session":{"role":"master"}}'::json
            else '{"Session":{"role":"peer"}}'::json
        end
        from beat b left join renewed s on s.id = b.session;
end $$;
