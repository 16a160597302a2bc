-- Shared by what makes somebody a project's master. A queue has further keys here (claim_key, hashes), and
-- what is told of it (project, channel, session_channels, preferred, preference).

-- Takes those from the arguments, from this one on.
local function of_project(q, claim_key, first)
  q.claim_key, q.project, q.hashes, q.session_channels = claim_key, ARGV[first], ARGV[first + 1], ARGV[first + 2]
  q.channel, q.preferred, q.preference = ARGV[first + 3], ARGV[first + 4], tonumber(ARGV[first + 5])
  return q
end

-- What a session of another program counts for.
local function priority_of(q, session)
  local f = redis.call('HMGET', q.hashes .. session, 'priority', 'agent_surface')
  return tonumber(f[1]) or (f[2] == q.preferred and q.preference or 0)
end

-- The master, and whether a session of that priority takes its place.
local function incumbent(q, session, priority)
  local master = read_master(q.main, q.claim_key, q.records)
  master.left_ms = master.session and redis.call('PTTL', q.main)
  -- Who died between the SETNX and the EXPIRE of the seed left a key for ever.
  local is_dead = master.left_ms == -1 and not master.claim
    and redis.call('EXISTS', q.hashes .. master.session) == 0
  if is_dead or master.left_ms == 0 then
    master.session = false
  end
  if not master.session then
    return master, true
  end
  if master.session == session then
    return master, not master.claim
  end
  local held = master.record and master.record.priority
  return master, priority > (held or priority_of(q, master.session))
end

-- Makes a claim the master for `ttl` ms, and tells whoever was.
local function succeed(q, master, by, token, ttl)
  if master.session and master.session ~= by.session then
    if master.claim then
      end_record(master.record.key, master.record, 'preempted')
      tell_lost(master.record, master.claim)
    end
    note_role(q.hashes .. master.session, false)
    tell_preempted(q.session_channels .. master.session, q.project, token, by)
  end
  redis.call('SET', q.main, by.session, 'PXAT', from_now(ttl))
  redis.call('SET', q.claim_key, by.id, 'PXAT', from_now(ttl + KEEP))
  local own = q.hashes .. by.session
  if redis.call('EXISTS', own) == 1 then
    redis.call('HSET', own, 'is_master', '1', 'priority', by.priority)
  end
end

-- Whether somebody waits whom that priority would overtake.
local function outranked(q, priority)
  local first = redis.call('ZRANGE', q.queue, 0, 0)[1]
  return first ~= nil and first:sub(1, 8) <= rank_of(priority)
end

-- Grants whoever waits first, if nobody is master whom it does not outrank. Whether it did, and whether a free
-- place is left open to others instead.
local function look_master(q)
  if is_empty(q) then
    return false
  end
  purge_queue(q)
  if grants_in then
    return false
  end
  local place, record = first_waiter(q)
  if not place then
    return false
  end
  record.priority = record.priority or 0
  local master, makes_way = incumbent(q, record.session, record.priority)
  if not makes_way then
    return false
  end
  if not master.session and is_left_open(q) then
    return false, true
  end
  local token, ttl = grant_place(q, place, record)
  record.id = place:sub(CLAIM_AT)
  succeed(q, master, record, token, ttl)
  tell_granted(record, record.id, token, ttl)
  return true
end
