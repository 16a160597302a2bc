-- What is due by itself. Every agent asks for it, and what one does is done for all.

-- Ends what ran out of a tenant's resources, of one kind if it is given; at most so many. Takes no lock that somebody
-- has, so that it is part of no deadlock: who has it sees to that resource.
create or replace function tenure.tend(p_tenant text, p_kind text, p_count bigint, p_floor bigint)
returns void language plpgsql volatile as $$
declare
    r tenure.resource;
    v_resource bigint;
begin
    for v_resource in
        select distinct d.resource from (
            select c.resource from tenure.claim c join tenure.resource o on o.id = c.resource
                where c.due <= tenure.clock() and o.tenant = p_tenant and (p_kind is null or o.kind = p_kind)
                order by c.due limit p_count
        ) d
    loop
        select * into r from tenure.resource where id = v_resource for update skip locked;
        continue when not found;
        perform tenure.catch_up(r, p_floor, tenure.clock());
        perform tenure.vacate(r);
    end loop;
end $$;

-- Does a bounded part of what is due. Answers when there is more, µs from now.
create or replace function tenure.upkeep(p_floor bigint) returns bigint language plpgsql volatile as $$
declare
    t bigint := tenure.clock();
    s tenure.session;
    v_tenant text;
    v_next bigint;
begin
    -- One tenant at a time: two that tend several could wait for each other's routing tables.
    select r.tenant into v_tenant from tenure.claim c join tenure.resource r on r.id = c.resource
        where c.due <= t order by c.due limit 1;
    if found then
        perform tenure.tend(v_tenant, null, 256, p_floor);
    end if;
    for s in select * from tenure.session where due <= t order by due limit 256 for update skip locked loop
        if s.until > t then
            update tenure.session set due = until where id = s.id;
        else
            delete from tenure.session where id = s.id;
            if not s.ended then
                perform tenure.tell_ended(s);
            end if;
        end if;
    end loop;
    delete from tenure.mark where claim in (
        select claim from tenure.mark where until <= t limit 4096 for update skip locked
    );
    delete from tenure.history where place in (
        select place from tenure.history where at <= t - 604800000000 order by place limit 4096 for update skip locked
    );
    select least(
        (select min(due) from tenure.claim), (select min(due) from tenure.session)
    ) into v_next;
    -- greatest() passes over null.
    return case when v_next is not null then greatest(v_next - tenure.clock(), 0) end;
end $$;
