-- Renews grants, places in queues and sessions, of all kinds and tenants together.
--
-- Keys are put together here from what they start with: five arguments a beat instead of up to nine
-- keys. (A cluster would want them listed; it is refused.)
--
-- ARGV  1 floor of tokens  2 what hashes of sessions start with  3 what master keys start with
--       4 what channels of sessions start with  5 channel of losses  6 preferred surface  7 its priority
--       8 channel of the agent  9 number of tenants; for each: what its keys start with, in the order
--       below; then for each beat 1 kind, 'session', or 'look' for a look after who waits for an exclusive
--       resource  2 tenant  3 claim, session or kind  4 name  5 ttl, ms
-- Returns for each beat three items: 'held', token, limit or -1 | 'waiting', position, limit or -1
-- | 'gone', reason, -1 | 'session', 1 if it is master, else 0, -1
-- | 'look', ms until the first time is up or -1, how many wait, and a fourth item: 1 if it is taken, else 0.

local floor, sessions, masters = tonumber(ARGV[1]), ARGV[2], ARGV[3]
local session_channels, lost_channel, preferred, preference = ARGV[4], ARGV[5], ARGV[6], tonumber(ARGV[7])
local agent = ARGV[8]
local STARTS = { 'leader', 'master', 'master_claim', 'lease', 'main', 'ttl', 'waiting', 'hb', 'max',
  'notifications', 'records', 'fence', 'routes', 'leases', 'queues', 'ends', 'queue_sessions',
  'channels' }
local tenants = {}
local at = 9
for i = 1, tonumber(ARGV[9]) do
  local tenant = { semaphores = {}, limits = {}, looked = {} }
  for _, start in ipairs(STARTS) do
    at = at + 1
    tenant[start] = ARGV[at]
  end
  tenants[i] = tenant
end

-- Why a claim does not hold any more. Its record outlives it, so without one the store has forgotten it,
-- whoever may have been granted the resource since.
local function lost(resource, record, taken)
  if not record then
    return 'gone', 'unknown'
  end
  return 'gone', is_of_another(record, resource) and 'conflict' or why_gone(record, taken)
end

local call = redis.call
local beat = {}

-- One look after a queue serves all of its beats.
local look = { leader = look_leader, master = look_master, lease = look_lease }
local function queue(tenant, kind, name)
  local of = kind .. ':' .. name
  local q = tenant.looked[of]
  if q then
    return q
  end
  q = queue_of(tenant[kind] .. name, tenant.queues .. of, tenant.ends .. of, tenant.fence,
    tenant.records, floor)
  if kind == 'master' then
    q.claim_key, q.project, q.hashes = tenant.master_claim .. name, name, sessions
    q.session_channels, q.channel, q.lost = session_channels, tenant.channels .. name, lost_channel
    q.preferred, q.preference = preferred, preference
  elseif kind == 'lease' then
    q.sessions, q.leases, q.routes, q.name = tenant.queue_sessions .. name, tenant.leases, tenant.routes, name
  end
  tenant.looked[of] = q
  look[kind](q)
  return q
end

-- When something will have to be done for those who wait, ms from now, or -1.
local function next_look(q, kind)
  local left = is_taken(q) and call('PTTL', q.main) or -1
  local lease = left > 0 and kind == 'lease' and read_lease(q.main)
  if lease and not lease.in_grace then
    left = left - lease.grace
  end
  local first = call('ZRANGE', q.ends, 0, 0, 'WITHSCORES')[2]
  local ends = first and math.max(0, tonumber(first) - now_ms) or -1
  if left < 0 or ends < 0 then
    return math.max(-1, left, ends)
  end
  return math.min(left, ends)
end

-- A beat of a claim that waited when it was read: its place; or else what it is now.
local function wait_on(tenant, kind, name, ttl, record)
  local q = queue(tenant, kind, name)
  record = read_record(record.key)
  if record and not record.gone and not record.token then
    local place = beat_place(q, record, ttl, agent)
    if place then
      return place, record
    end
  end
  return nil, record
end

-- What beats of one ttl have in common, by the ttl as the caller wrote it.
local rhythms = {}
local function rhythm_of(ttl)
  local rhythm = rhythms[ttl]
  if not rhythm then
    local ms = tonumber(ttl)
    rhythm = { ends = from_now(ms), record_ends = from_now(ms + KEEP), score = score(now_s + ms / 1000) }
    rhythms[ttl] = rhythm
  end
  return rhythm
end

-- Most beats are like the one before: the claim holds, and its ttl is the one it was granted with. Each of
-- these does for such a beat what the function of its name does for any, with as few commands as may be.
-- Nothing if the beat is not such a one; then nothing was written.
local again = {}

function again.leader(tenant, id, name, ttl, key)
  local main = tenant.leader .. name
  local f = call('HMGET', key, 'token', 'ttl', 'top')
  if not f[1] or f[2] ~= ttl or f[3] or call('GET', main) ~= id then
    return nil
  end
  local rhythm = rhythm_of(ttl)
  call('PEXPIREAT', key, rhythm.record_ends)
  call('PEXPIREAT', main, rhythm.ends)
  return 'held', tonumber(f[1])
end

-- Whoever waits looks after the queue; a holder does not.
function again.semaphore(tenant, id, name, ttl, key)
  local limit = tenant.limits[name]
  if not limit then
    limit = tonumber(call('GET', tenant.max .. name))
    tenant.limits[name] = limit
  end
  local f = call('HMGET', key, 'token', 'ttl', 'top', 'notified')
  if not limit or not f[1] or f[2] ~= ttl or f[3] or f[4] then
    return nil
  end
  local main, member = tenant.main .. name, id:gsub('%-', '')
  local until_s = call('ZSCORE', main, member)
  if not until_s or tonumber(until_s) <= now_s then
    return nil
  end
  local rhythm = rhythm_of(ttl)
  call('PEXPIREAT', key, rhythm.record_ends)
  call('ZADD', main, rhythm.score, member)
  return 'held', tonumber(f[1]), limit
end

function beat.leader(tenant, id, name, ttl, key)
  local main = tenant.leader .. name
  local record = read_briefly(key)
  local place
  if record and record.place then
    place, record = wait_on(tenant, 'leader', name, ttl, record)
    if place then
      return 'waiting', place
    end
  end
  if redis.call('GET', main) ~= id or not record or not record.token then
    return lost('leader:' .. name, record, 'conflict')
  end
  if beat_record(record, ttl) then
    redis.call('PEXPIREAT', main, from_now(ttl))
  end
  return 'held', record.token
end

function beat.master(tenant, id, name, ttl, key)
  local main, claim_key = tenant.master .. name, tenant.master_claim .. name
  local record = read_record(key)
  local place
  if record and record.place then
    place, record = wait_on(tenant, 'master', name, ttl, record)
    if place then
      return 'waiting', place
    end
  end
  local is_master = record and record.token and redis.call('GET', main) == record.session
    and redis.call('GET', claim_key) == id
  if not is_master then
    return lost('master:' .. name, record, 'preempted')
  end
  if beat_record(record, ttl) then
    redis.call('PEXPIREAT', main, from_now(ttl))
    keep_record(claim_key, ttl)
  end
  return 'held', record.token
end

function beat.lease(tenant, id, name, ttl, key)
  local main = tenant.lease .. name
  local lease = read_lease(main)
  if lease and lease.owner == id and lease.in_grace then
    -- Its session may wait for it.
    queue(tenant, 'lease', name)
    lease = read_lease(main)
  end
  if not lease or lease.owner ~= id then
    local record, place = read_briefly(key), nil
    if record and record.place then
      place, record = wait_on(tenant, 'lease', name, ttl, record)
      if place then
        return 'waiting', place
      end
      lease = read_lease(main)
    end
    if not lease or lease.owner ~= id then
      return lost('lease:' .. name, record, 'conflict')
    end
  end
  beat_lease(main, key, tenant.routes, lease, ttl)
  return 'held', lease.token
end

-- One look after a semaphore serves all of its beats.
local function semaphore(tenant, name)
  local s = tenant.semaphores[name]
  if not s then
    s = { fence = tenant.fence, records = tenant.records, notifications = tenant.notifications,
      floor = floor, shared = true }
    for _, key in ipairs({ 'main', 'ttl', 'waiting', 'hb', 'max' }) do
      s[key] = tenant[key] .. name
    end
    tenant.semaphores[name] = s
    purge(s)
    s.limit = limit_of(s)
    grant_heads(s, s.limit)
  end
  return s
end

function beat.semaphore(tenant, id, name, ttl, key)
  local s = semaphore(tenant, name)
  local record = read_record(key)
  if not record then
    return 'gone', 'unknown'
  end
  if is_of_another(record, 'semaphore:' .. name) then
    return 'gone', 'conflict'
  end
  if not record.gone then
    local member = id:gsub('%-', '')
    local answer = beat_permit(s, record, member, ttl)
    if answer then
      return answer[1], answer[2], answer[3]
    end
  end
  return 'gone', why_gone(record, record.token and 'conflict' or 'expired')
end

local function beat_session(id, ttl)
  local key = sessions .. id
  local f = redis.call('HMGET', key, 'tenant_id', 'project_id', 'is_master')
  if not f[1] or not f[2] then
    return 'gone', 'unknown'
  end
  if redis.call('PTTL', key) < ttl then
    redis.call('PEXPIREAT', key, from_now(ttl))
  end
  local role = redis.call('GET', masters .. f[1] .. ':' .. f[2]) == id and '1' or '0'
  if f[3] ~= role then
    redis.call('HSET', key, 'is_master', role)
  end
  return 'session', tonumber(role)
end

local function answer_beat(kind, index, id, name, ttl)
  if kind == 'session' then
    return beat_session(id, tonumber(ttl))
  end
  local tenant = tenants[tonumber(index)]
  if kind == 'look' then
    local q = queue(tenant, id, name)
    return 'look', next_look(q, id), call('ZCARD', q.queue), is_taken(q) and 1 or 0
  end
  local key = tenant.records .. id
  local same = again[kind]
  if same then
    local word, a, b = same(tenant, id, name, ttl, key)
    if word then
      return word, a, b
    end
  end
  return beat[kind](tenant, id, name, tonumber(ttl), key)
end

local answers = {}
for first = at + 1, #ARGV, 5 do
  local ok, word, a, b, c = pcall(answer_beat, ARGV[first], ARGV[first + 1], ARGV[first + 2],
    ARGV[first + 3], ARGV[first + 4])
  if not ok then
    -- Somebody put something else in its place. That takes nothing from the other beats; any other
    -- error does.
    local text = type(word) == 'table' and word.err or word
    if not string.find(tostring(text), 'WRONGTYPE', 1, true) then
      error(word, 0)
    end
    word, a, b, c = 'gone', 'conflict', nil, nil
  end
  local n = #answers
  answers[n + 1], answers[n + 2], answers[n + 3], answers[n + 4] = word, a, b or -1, c
end
return answers
