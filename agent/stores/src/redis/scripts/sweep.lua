-- Takes dead members out of sets that cannot expire: the sessions of projects, to which programs without Tenure
-- add as well, and the names of tenants' leases. Projects are told of the sessions, readers of the routing table
-- of the leases. A lease for which a claim waits may be taken out: its next grant adds it again.
--
-- Agents with other prefixes may have listed a set, so its key says what its members are.
--
-- KEYS  1 sets to sweep, ZSET by when to look at each, ms
-- Returns the ms until the next look is due, 0 if some were left for another call.

-- Most sets of a call, members of a set that are looked at, at random, and commands of a call, which then takes
-- about a millisecond.
local SETS_MAX, MEMBERS_MAX, COMMANDS_MAX = 64, 64, 400

local index, commands = KEYS[1], 0

-- A set that is due later than SWEEP_EVERY from now was listed while the clock was ahead.
local function due_sets()
  local due = redis.call('ZRANGEBYSCORE', index, '-inf', whole(now_ms), 'LIMIT', 0, SETS_MAX)
  local late = redis.call('ZRANGEBYSCORE', index, '(' .. whole(now_ms + SWEEP_EVERY), '+inf', 'LIMIT', 0,
    SETS_MAX - #due)
  for _, set in ipairs(late) do
    due[#due + 1] = set
  end
  return due
end

-- True if a session has no hash, or one that says another project: it died here, and came back there.
local function is_away(hash, project)
  local of = redis.pcall('HGET', hash, 'project_id')
  if type(of) == 'string' then
    return of ~= project
  end
  -- A hash without that field, and a key that is no hash, are other programs'.
  return redis.call('EXISTS', hash) == 0
end

-- Takes out sessions of a project that are dead; returns how many there were.
local function sweep_sessions(set, members, prefix, tenant, project)
  local channel, dead = prefix .. ':events:project:' .. tenant .. ':' .. project, 0
  for _, session in ipairs(members) do
    if is_away(prefix .. ':session:' .. session, project) then
      reap(set, session, channel)
      dead = dead + 1
    end
  end
  return dead
end

-- The same for names of a tenant's leases.
local function sweep_leases(set, members, prefix)
  local dead = {}
  for _, name in ipairs(members) do
    if redis.call('EXISTS', prefix .. 'lease:' .. name) == 0 then
      dead[#dead + 1] = name
    end
  end
  if #dead > 0 then
    redis.call('SREM', set, unpack(dead))
    next_version(prefix .. 'routes')
  end
  return #dead
end

local function sweep(set)
  local members = redis.pcall('SRANDMEMBER', set, MEMBERS_MAX)
  if members.err then
    -- This user may not read it, or it is no set: perhaps that is put right.
    redis.call('ZADD', index, whole(now_ms + SWEEP_EVERY), set)
    return
  end
  local prefix, tenant, project = set:match('^(.*):project:([^:]*):([^:]*):sessions$')
  local own = set:match('^(.*:)leases$')
  local dead
  if prefix and #members == 0 then
    -- Another program may have taken sessions out, and left their names.
    redis.call('DEL', names_of(set))
  end
  if prefix then
    dead = sweep_sessions(set, members, prefix, tenant, project)
  elseif own then
    dead = sweep_leases(set, members, own)
  else
    redis.call('ZREM', index, set)
    return
  end
  commands = commands + 2 + #members + 5 * dead
  if dead == #members and dead < MEMBERS_MAX then
    redis.call('ZREM', index, set)
  else
    -- Where some were dead more may be, but other sets that are due come first.
    redis.call('ZADD', index, whole(dead > 0 and now_ms or now_ms + SWEEP_EVERY), set)
  end
end

local due, looked_at = due_sets(), 0
for _, set in ipairs(due) do
  if commands >= COMMANDS_MAX then
    break
  end
  sweep(set)
  looked_at = looked_at + 1
end
if looked_at < #due or #due == SETS_MAX then
  return 0
end
local first = tonumber(redis.call('ZRANGE', index, 0, 0, 'WITHSCORES')[2])
return first and math.max(0, math.min(first - now_ms, SWEEP_EVERY)) or SWEEP_EVERY
