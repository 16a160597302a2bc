-- Renews grants, places in queues and sessions, of all kinds and tenants together.
--
-- Most beats are like the one before: the claim holds, and its ttl is the one it was granted with. Such a
-- beat is answered 'steady', and the next one of that claim comes as a steady one, which takes less than half
-- the time: what it goes by is read for many at once, and its record is not read.
--
-- Keys of other beats are put together here from what they start with: five arguments a beat instead of up to
-- nine keys. (A cluster would want them listed; it is refused.)
--
-- ARGV  1 number of groups of steady beats; for each: 1 kind  2 ttl, ms  3 number of beats, n
--       n keys: of leaders and leases, or the limits of semaphores  n records
--       n claims, or the keys of semaphores  of semaphores: n members
-- Returns for each of them its limit, 0 where there is none, or -1: it is no steady one, and nothing was written.
--
-- What follows is for all other beats, and left out if there are none.
-- ARGV  1 floor of tokens  2 what hashes of sessions start with  3 what master keys start with
--       4 what channels of sessions start with  5 preferred surface  6 its priority
--       7 channel of the agent  8 number of tenants; for each: what its keys start with, in the order
--       below; then for each beat 1 kind or 'session'  2 tenant  3 claim or session  4 name  5 ttl, ms
-- Returns for each beat three items: 'held' or 'steady', token, limit or -1 | 'waiting', position, limit or -1
-- | 'gone', reason, words of a revocation or -1 | 'session', 1 if it is master, else 0, -1.

local call, pcall_of, answers, at = redis.call, redis.pcall, {}, 1
judge('INCR')

-- The instant `ms` from now, as PEXPIREAT wants it.
local function ends_in(ms)
  return string.format('%.0f', now_ms + ms)
end

-- Each of these does a group whose keys begin after the argument `a`.
local steady = {}

function steady.leader(a, n, ttl)
  local holders = call('MGET', unpack(ARGV, a + 1, a + n))
  local ends, record_ends = ends_in(ttl), ends_in(ttl + KEEP)
  for i = a + 1, a + n do
    local answer = -1
    if holders[i - a] == ARGV[i + 2 * n] and call('PEXPIREAT', ARGV[i + n], record_ends) == 1 then
      call('PEXPIREAT', ARGV[i], ends)
      answer = 0
    end
    answers[#answers + 1] = answer
  end
end

-- Whoever waits looks after the queue; a holder does not. Its time is up KEEP before its record's is.
function steady.semaphore(a, n, ttl)
  local limits = call('MGET', unpack(ARGV, a + 1, a + n))
  local until_s, record_ends = string.format('%.3f', (now_ms + ttl) / 1000), ends_in(ttl + KEEP)
  for i = a + 1, a + n do
    local record, answer = ARGV[i + n], -1
    if limits[i - a] and call('PTTL', record) > KEEP
      and pcall_of('ZADD', ARGV[i + 2 * n], 'XX', 'CH', until_s, ARGV[i + 3 * n]) == 1 then
      call('PEXPIREAT', record, record_ends)
      answer = tonumber(limits[i - a]) or 0
    end
    answers[#answers + 1] = answer
  end
end

function steady.lease(a, n, ttl)
  local now, ends, record_ends = ends_in(0), {}, {}
  for i = a + 1, a + n do
    local main, answer = ARGV[i], -1
    local f = pcall_of('HMGET', main, 'owner', 'grace_ms')
    local grace = f[1] == ARGV[i + 2 * n] and tonumber(f[2])
    local left = grace and call('PTTL', main) - grace
    if left and left > 0 and left <= ttl then
      ends[grace] = ends[grace] or ends_in(ttl + grace)
      record_ends[grace] = record_ends[grace] or ends_in(ttl + grace + KEEP)
      call('HSET', main, 'renewed_at', now)
      call('PEXPIREAT', main, ends[grace])
      call('PEXPIREAT', ARGV[i + n], record_ends[grace])
      answer = 0
    end
    answers[#answers + 1] = answer
  end
end

local COLUMNS = { leader = 3, semaphore = 4, lease = 3 }
for _ = 1, tonumber(ARGV[1]) do
  local kind, n = ARGV[at + 1], tonumber(ARGV[at + 3])
  steady[kind](at + 3, n, tonumber(ARGV[at + 2]))
  at = at + 3 + n * COLUMNS[kind]
end
if at == last then
  return answers
end
-- PRELUDE

local floor, sessions, masters = tonumber(ARGV[at + 1]), ARGV[at + 2], ARGV[at + 3]
local session_channels, preferred, preference = ARGV[at + 4], ARGV[at + 5], tonumber(ARGV[at + 6])
local agent = ARGV[at + 7]
local STARTS = { 'leader', 'master', 'master_claim', 'lease', 'main', 'ttl', 'waiting', 'hb', 'max',
  'notifications', 'records', 'fence', 'routes', 'leases', 'queues', 'ends', 'queue_sessions',
  'channels', 'sets' }
local tenants = {}
at = at + 8
for i = 1, tonumber(ARGV[at]) do
  local tenant = { semaphores = {}, limits = {}, looked = {} }
  for _, start in ipairs(STARTS) do
    at = at + 1
    tenant[start] = ARGV[at]
  end
  tenants[i] = tenant
end

-- Why it is gone, and the words of whoever revoked it.
local function gone(record, taken)
  local reason = why_gone(record, taken)
  return 'gone', reason, reason == 'revoked' and redis.call('HGET', record.key, 'words') or nil
end

-- Why a claim does not hold any more. Its record outlives it, so without one the store has forgotten it,
-- whoever may have been granted the resource since.
local function lost(resource, record, taken)
  if not record then
    return 'gone', 'unknown'
  end
  if is_of_another(record, resource) then
    return 'gone', 'conflict'
  end
  return gone(record, taken)
end

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
    q.session_channels, q.channel = session_channels, tenant.channels .. name
    q.preferred, q.preference = preferred, preference
  elseif kind == 'lease' then
    q.sessions, q.leases, q.routes, q.name = tenant.queue_sessions .. name, tenant.leases, tenant.routes, name
    q.sets = tenant.sets
  end
  tenant.looked[of] = q
  look[kind](q)
  return q
end

-- A beat of a claim that waited when it was read: its place; or else what it is now. A look that grants it or
-- takes it out takes its place out of the queue.
local function wait_on(tenant, kind, name, ttl, record)
  local place = beat_place(queue(tenant, kind, name), record, ttl, agent)
  return place, place and record or read_record(record.key)
end

-- The word for a claim that holds: the next beat of it is a steady one, if it is like this one.
local function word_of(record, ttl)
  return record.ttl == ttl and not record.top and 'steady' or 'held'
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
  adopt(record, agent)
  if beat_record(record, ttl) then
    redis.call('PEXPIREAT', main, from_now(ttl))
  end
  return word_of(record, ttl), record.token
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
  adopt(record, agent)
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
  local known = call('HGET', key, 'agent')
  if known then
    adopt({ key = key, agent = known }, agent)
  end
  beat_lease(main, key, tenant.routes, lease, ttl)
  return lease.left <= ttl + lease.grace and 'steady' or 'held', lease.token
end

-- One look after a semaphore serves all of its beats.
local function semaphore(tenant, name)
  local s = tenant.semaphores[name]
  if not s then
    s = { fence = tenant.fence, records = tenant.records, notifications = tenant.notifications,
      floor = floor, shared = true, agent = agent }
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
      adopt(record, agent)
      return answer[1] == 'held' and word_of(record, ttl) or answer[1], answer[2], answer[3]
    end
  end
  return gone(record, record.token and 'conflict' or 'expired')
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
  return beat[kind](tenant, id, name, tonumber(ttl), tenant.records .. id)
end

for first = at + 1, last, 5 do
  local ok, word, a, b = pcall(answer_beat, ARGV[first], ARGV[first + 1], ARGV[first + 2],
    ARGV[first + 3], ARGV[first + 4])
  if not ok then
    -- Somebody put something else in its place. That takes nothing from the other beats; any other
    -- error does.
    local text = type(word) == 'table' and word.err or word
    if not string.find(tostring(text), 'WRONGTYPE', 1, true) then
      error(word, 0)
    end
    word, a, b = 'gone', 'conflict', nil
  end
  local n = #answers
  answers[n + 1], answers[n + 2], answers[n + 3] = word, a, b or -1
end
return answers
