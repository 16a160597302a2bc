-- Renews grants, places in queues and sessions, of all kinds and tenants together.
--
-- Keys are put together here from what they start with: five arguments a beat instead of up to nine
-- keys. (A cluster would want them listed; it is refused.)
--
-- ARGV  1 floor of tokens  2 what hashes of sessions start with  3 what master keys start with
--       4 number of tenants; for each: what its keys start with, in the order below; then for each beat
--       1 kind, or 'session'  2 tenant  3 claim or session  4 name  5 ttl, ms
-- Returns for each beat three items: 'held', token, limit or -1 | 'waiting', position, limit or -1
-- | 'gone', reason, -1 | 'session', 1 if it is master, else 0, -1.

local floor, sessions, masters = tonumber(ARGV[1]), ARGV[2], ARGV[3]
local STARTS = { 'leader', 'master', 'master_claim', 'lease', 'main', 'ttl', 'waiting', 'hb', 'max',
  'notifications', 'records', 'fence', 'routes' }
local tenants = {}
local at = 4
for i = 1, tonumber(ARGV[4]) do
  local tenant = { semaphores = {}, limits = {} }
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
  if not lease or lease.owner ~= id then
    return lost('lease:' .. name, read_briefly(key), 'conflict')
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
