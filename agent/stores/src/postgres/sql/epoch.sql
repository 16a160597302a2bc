-- Tables that came back empty or older: restored, made anew, or taken over by a standby that was behind. Agents
-- remember the epoch, and how long the server's log was. Tables of another epoch, or a log that is shorter, lack
-- something that an agent knew of.

-- The epoch that agents know: also copies, and tables that were made anew from a dump, are others.
create or replace function tenure.epoch(a tenure.about) returns text language sql stable as $$
    select concat_ws('/', a.epoch, (select system_identifier from pg_control_system()),
        (select oid from pg_database where datname = current_database()), 'tenure.about'::regclass::oid)
$$;

-- The length of the log. Of a transaction that writes, all of it is as durable as its commit when that is answered:
-- also what a synchronous standby must have.
create or replace function tenure.written() returns bigint language sql volatile
set search_path = pg_catalog, pg_temp as $$
    select (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::bigint
$$;

create or replace function tenure.quarantine_left(t bigint) returns bigint language plpgsql volatile as $$
begin
    return (select greatest(coalesce(quarantined_until, 0) - t, 0) from tenure.about);
end $$;

-- Whether an agent that knows this epoch, with a log of that length, has met a loss that is not marked yet.
create or replace function tenure.is_lost(a tenure.about, p_epoch text, p_known bigint, p_written bigint)
returns boolean language plpgsql volatile as $$
declare
    v_epoch text := tenure.epoch(a);
begin
    return case when v_epoch = p_epoch then p_known > p_written else a.was is distinct from p_epoch end;
end $$;

-- Marks a loss, if there is one: nothing is granted for as long as lost grants may be valid. `p_longest` is the
-- longest ttl that the agent knows of, `p_written` the length of the log when it came.
create or replace function tenure.judge_epoch(p_epoch text, p_known bigint, p_written bigint, p_longest bigint)
returns table (epoch text, written bigint, grants_in bigint) language plpgsql volatile
set search_path = pg_catalog, pg_temp as $$
declare
    a tenure.about;
    t bigint := tenure.clock();
    v_longest bigint;
begin
    select * into a from tenure.about;
    if p_epoch <> '' and (p_epoch <> tenure.epoch(a) or p_known > p_written) then
        select * into a from tenure.about for update;
        select greatest(max(ttl), p_longest) into v_longest from tenure.claim;
        if tenure.is_lost(a, p_epoch, p_known, p_written) then
            -- Those that come later must know it from the epoch of before; one of other tables is known from it
            -- already.
            update tenure.about o set
                epoch = case when tenure.epoch(a) = p_epoch then gen_random_uuid()::text else o.epoch end,
                was = p_epoch, since = t, quarantined_until = t
                returning o.* into a;
        end if;
        -- Others have found the same loss: it may take longer than they know, but does not begin again.
        if a.was = p_epoch and a.quarantined_until > 0 then
            update tenure.about o set quarantined_until = greatest(o.quarantined_until, o.since + v_longest)
                returning o.* into a;
        end if;
    end if;
    -- Few calls of this write anything: only the part of the log that was flushed is durable then.
    return query select tenure.epoch(a), (pg_current_wal_flush_lsn() - '0/0'::pg_lsn)::bigint,
        greatest(coalesce(a.quarantined_until, 0) - t, 0);
end $$;

-- Grants again, by an administrator's word. Waiters are looked at at once. Whether there was a quarantine.
create or replace function tenure.end_quarantine() returns boolean language plpgsql volatile
set search_path = pg_catalog, pg_temp as $$
declare
    t bigint := tenure.clock();
begin
    if tenure.quarantine_left(t) = 0 then return false; end if;
    update tenure.about set quarantined_until = 0;
    update tenure.claim set due = t where token is null and due > t;
    return true;
end $$;
