-- What is due by itself. Every agent asks for it, and what one does is done for all.

-- Ends what ran out of a tenant's resources since `p_from`, of one kind if it is given, in so many steps at most, and
-- begins with no resource after `p_stop` if that is given. Takes no lock that somebody has, so that it is part of no
-- deadlock: who has it sees to that resource.
create or replace function tenure.tend(
    p_tenant text, p_kind text, p_steps bigint, p_floor bigint, p_from bigint default 0, p_stop bigint default null
) returns void language plpgsql volatile
set search_path = pg_catalog, pg_temp as $$
declare
    t bigint := tenure.clock();
    d record;
    r tenure.resource;
    v_steps integer := p_steps;
    v_part integer;
begin
    -- Claim by claim: a join is planned by what the tables held when they were looked at last, and if they were empty
    -- then, it reads all that the tenant has.
    for d in select id, resource from tenure.claim where due >= p_from and due <= t order by due limit 4096 loop
        select * into r from tenure.resource
            where id = d.resource and tenant = p_tenant and (p_kind is null or kind = p_kind) for update skip locked;
        continue when not found;
        -- What ran out of the same resource may have been ended with an earlier one.
        perform from tenure.claim where id = d.id and due <= t for update skip locked;
        continue when not found;
        v_part := least(v_steps, tenure.steps_aside());
        v_steps := v_steps - v_part + tenure.catch_up(r, p_floor, tenure.clock(), v_part);
        perform tenure.vacate(r);
        exit when v_steps <= 0 or tenure.clock() >= p_stop;
    end loop;
end $$;

-- Does a bounded part of what is due. Answers when there is more, µs from now.
create or replace function tenure.upkeep(p_floor bigint) returns bigint language plpgsql volatile
set search_path = pg_catalog, pg_temp as $$
declare
    t bigint := tenure.clock();
    s tenure.session;
    v_tenant text;
    v_from bigint;
    v_is_busy boolean;
    v_place bigint;
    v_next bigint;
begin
    -- One tenant at a time: two that tend several could wait for each other's routing tables. Its first claim and its
    -- resource are locked by nobody, so that a lock keeps upkeep from no other.
    select o.tenant, c.due into v_tenant, v_from
        from tenure.claim c join tenure.resource o on o.id = c.resource
        where c.due <= t order by c.due limit 1 for update of o, c skip locked;
    v_is_busy := found;
    if found then
        -- Claims of this tenant wait for its locks, and other calls behind them: for 2 ms, and longer if it is late.
        perform tenure.tend(v_tenant, null, tenure.steps_max(), p_floor, v_from, t + 2000 + (t - v_from) / 64);
    end if;
    for s in select * from tenure.session where due <= t order by due limit 256 for update skip locked loop
        v_is_busy := true;
        if s.until > t then
            update tenure.session set due = until where id = s.id;
        else
            delete from tenure.session where id = s.id;
            if not s.ended then
                perform tenure.tell_ended(s);
            end if;
        end if;
    end loop;
    -- By the places of rows, in any plan.
    delete from tenure.mark where ctid = any (array(
        select ctid from tenure.mark where until <= t order by until limit 512 for update skip locked
    ));
    -- The first is the oldest, but for what an agent told late.
    select place into v_place from tenure.history order by place limit 1;
    delete from tenure.history where place in (
        select place from tenure.history
            where place between v_place and v_place + 4095 and at <= t - 604800000000 for update skip locked
    );
    select least(
        (select min(due) from tenure.claim), (select min(due) from tenure.session)
    ) into v_next;
    if v_next <= t and not v_is_busy then
        -- Somebody has locked all that is due: look again in 20 ms.
        return 20000;
    end if;
    -- greatest() passes over null.
    return case when v_next is not null then greatest(v_next - tenure.clock(), 0) end;
end $$;
