-- Releases and revocations.

-- Whether the claim was there. Leaves a mark in any case: a copy of the claim that comes later is refused. The
-- resource is locked even if it is free, since that copy may be on its way now.
create or replace function tenure.release(
    p_claim uuid, p_tenant text, p_kind text, p_name text, p_floor bigint
) returns boolean language plpgsql volatile as $$
declare
    r tenure.resource := tenure.occupy(p_tenant, p_kind, p_name);
    t bigint := tenure.clock();
    v_steps integer := tenure.catch_up(r, p_floor, t, tenure.steps_max());
    c tenure.claim;
begin
    select * into c from tenure.claim where id = p_claim;
    if c.id is null then
        perform tenure.mark(p_claim, 'Released', null, t);
    elsif c.resource = r.id then
        select * into c from tenure.claim where id = p_claim for update;
        perform tenure.end_claim(r, c, 'Released', null, p_floor, t, v_steps);
    end if;
    perform tenure.vacate(r);
    return c.resource is not distinct from r.id;
end $$;

-- How many grants were taken away: all, or the one with that token.
create or replace function tenure.revoke(
    p_tenant text, p_kind text, p_name text, p_token bigint, p_words text, p_floor bigint
) returns bigint language plpgsql volatile as $$
declare
    r tenure.resource;
    t bigint;
    c tenure.claim;
    v_revoked tenure.claim[];
    v_steps integer;
begin
    select * into r from tenure.resource where tenant = p_tenant and kind = p_kind and name = p_name for update;
    if not found then return 0; end if;
    t := tenure.clock();
    v_steps := tenure.catch_up(r, p_floor, t, tenure.steps_max());
    v_revoked := array(
        select h from tenure.claim h where h.resource = r.id and h.token is not null
            and (p_token is null or h.token = p_token)
            order by h.token for update
    );
    foreach c in array v_revoked loop
        v_steps := tenure.end_claim(r, c, 'Revoked', p_words, p_floor, t, v_steps);
    end loop;
    perform tenure.vacate(r);
    return cardinality(v_revoked);
end $$;
