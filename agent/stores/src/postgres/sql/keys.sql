-- Keys of gateways.

-- The turn of whoever changes keys. They are another version from then on, if that is said.
create or replace function tenure.change_keys(p_is_change boolean) returns void language plpgsql volatile as $$
begin
    perform 1 from tenure.keys for update;
    if p_is_change then
        update tenure.keys set version = gen_random_uuid();
    end if;
end $$;

-- Adds a key, or puts it in the place of one with its id. For a join key it is added once, and never put back: whoever
-- repeats an exchange learns what became of its key.
create or replace function tenure.put_key(
    p_id text, p_principal text, p_sha256 text, p_bounds text, p_expires_at bigint, p_created_at bigint,
    p_join text, p_most bigint
) returns text language plpgsql volatile
set search_path = pg_catalog, pg_temp as $$
declare
    k tenure.key;
    j tenure.key;
    v_by text := p_id || ':' || p_sha256;
begin
    perform tenure.change_keys(false);
    select * into k from tenure.key where id = p_id;
    if p_join is not null then
        select * into j from tenure.key where id = p_join;
        if j.id is null then return 'gone'; end if;
        if j.joined = v_by then
            return case when k.sha256 = p_sha256 then 'again' else 'revoked' end;
        end if;
        if j.joined is not null then return 'used'; end if;
        -- Also if it is the join key itself.
        if k.id is not null then return 'taken'; end if;
    end if;
    if k.id is null and (select count(*) from tenure.key) >= p_most then return 'full'; end if;
    update tenure.key set joined = v_by where id = p_join;
    insert into tenure.key (id, principal, sha256, bounds, expires_at, created_at)
        values (p_id, p_principal, p_sha256, p_bounds, p_expires_at, p_created_at)
        on conflict (id) do update set
            principal = excluded.principal, sha256 = excluded.sha256, bounds = excluded.bounds,
            expires_at = excluded.expires_at, created_at = excluded.created_at;
    perform tenure.change_keys(true);
    return 'done';
end $$;

-- How many of these keys were there.
create or replace function tenure.remove_keys(p_ids text[]) returns bigint language plpgsql volatile
set search_path = pg_catalog, pg_temp as $$
declare
    v_removed bigint;
begin
    perform tenure.change_keys(true);
    delete from tenure.key where id = any (p_ids);
    get diagnostics v_removed = row_count;
    return v_removed;
end $$;

-- Notes when keys were used last.
create or replace function tenure.use_keys(p_ids text[], p_ats bigint[]) returns void language plpgsql volatile
set search_path = pg_catalog, pg_temp as $$
begin
    perform tenure.change_keys(false);
    update tenure.key k set used_at = u.at from unnest(p_ids, p_ats) as u (id, at) where k.id = u.id;
end $$;
