-- Releases and revocations.

-- Whether the claim was there. Leaves a mark in any case: a copy of the claim that comes later is refused. The
-- resource is locked even if it is free, since that copy may be on its way now.
create or replace function tenure.release(
    p_claim uuid, p_tenant text, p_kind text, p_name text, p_floor bigint
) returns boolean language plpgsql volatile
set search_path = pg_catalog, pg_temp as $$
declare
    r tenure.resource := tenure.occupy(p_tenant, p_kind, p_name);
    t bigint := tenure.clock();
    v_steps integer := tenure.catch_up(r, p_floor, t, tenure.steps_aside());
    c tenure.claim;
begin
    select * into c from tenure.claim where id = p_claim and resource = r.id;
    if c.id is not null then
        v_steps := tenure.end_claim(r, c, 'Released', null, t, v_steps);
    elsif not exists (select from tenure.claim where id = p_claim) then
        perform tenure.mark(p_claim, 'Released', null, t);
    end if;
    perform tenure.vacate(r);
    return c.id is not null;
end $$;

-- Takes grants away: that with this token, or a part of them all. Answers how many, and what the call for the next part
-- takes for `p_newest`; null after the last one. What is granted after the first call stays.
create or replace function tenure.revoke(
    p_tenant text, p_kind text, p_name text, p_token bigint, p_words text, p_floor bigint, p_newest bigint
) returns table (revoked bigint, newest bigint) language plpgsql volatile
set search_path = pg_catalog, pg_temp as $$
declare
    r tenure.resource;
    t bigint;
    c tenure.claim;
    v_revoked tenure.claim[];
    v_steps integer;
begin
    revoked := 0;
    select * into r from tenure.resource where tenant = p_tenant and kind = p_kind and name = p_name for update;
    if found then
        t := tenure.clock();
        v_steps := tenure.catch_up(r, p_floor, t, tenure.steps_aside());
        p_newest := coalesce(p_newest, (select last_value from tenure.token));
        v_revoked := array(
            select h from tenure.claim h where h.resource = r.id and h.token <= p_newest
                and (p_token is null or h.token = p_token)
                order by h.token limit tenure.steps_max() for update
        );
        foreach c in array v_revoked loop
            v_steps := tenure.end_claim(r, c, 'Revoked', p_words, t, v_steps);
        end loop;
        perform tenure.vacate(r);
        revoked := cardinality(v_revoked);
        newest := case when revoked = tenure.steps_max() then p_newest end;
    end if;
    return next;
end $$;
