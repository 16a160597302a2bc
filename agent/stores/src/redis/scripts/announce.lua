-- Announces a session in its project, or in another one (SPEC-032 5.1, 5.2).
--
-- KEYS  1 hash of the session  2 sessions of the project, SET  3 master of the project, STRING
--       4 what says that the session has ended
-- ARGV  1 session  2 tenant  3 project  4 surface  5 host  6 name  7 ttl, ms
--       8 priority unless it claims with another  9 what hashes of sessions start with
--       10 channel of the project  11 what the keys of projects' sessions start with
--       12 what they end with  13 sets to sweep, ZSET
-- Returns 1, also when the session has ended: nobody waits for the answer then.

-- How many other sessions of the project are looked at, whether they are alive.
local LOOKED_AT = 16

-- A copy that comes late must not bring the session back.
if redis.call('EXISTS', KEYS[4]) == 1 then
  return 1
end

local key, set, main = KEYS[1], KEYS[2], KEYS[3]
local session, tenant, project, ttl = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[7])

-- SPEC-032 writes ISO 8601; the days of a civil date after H. Hinnant, chrono-compatible low-level date
-- algorithms.
local function iso8601()
  local seconds = math.floor(now_us / 1000000)
  local z = math.floor(seconds / 86400) + 719468
  local era = math.floor(z / 146097)
  local doe = z - era * 146097
  local yoe = math.floor((doe - math.floor(doe / 1460) + math.floor(doe / 36524)
    - math.floor(doe / 146096)) / 365)
  local doy = doe - (365 * yoe + math.floor(yoe / 4) - math.floor(yoe / 100))
  local mp = math.floor((5 * doy + 2) / 153)
  local day = doy - math.floor((153 * mp + 2) / 5) + 1
  local month = mp < 10 and mp + 3 or mp - 9
  local year = yoe + era * 400 + (month <= 2 and 1 or 0)
  local rest = seconds % 86400
  return string.format('%04d-%02d-%02dT%02d:%02d:%02d.%06d+00:00', year, month, day,
    math.floor(rest / 3600), math.floor(rest / 60) % 60, rest % 60, now_us % 1000000)
end

local is_master = redis.call('GET', main) == session and '1' or '0'
local f = redis.call('HMGET', key, 'tenant_id', 'project_id', 'agent_surface', 'host', 'name', 'is_master')
if f[1] and f[2] and (f[1] ~= tenant or f[2] ~= project) then
  local former = ARGV[11] .. f[1] .. ':' .. f[2] .. ARGV[12]
  redis.call('SREM', former, session)
  take_name(former, session)
end
if f[1] ~= tenant or f[2] ~= project or f[3] ~= ARGV[4] or f[4] ~= ARGV[5] or f[5] ~= ARGV[6]
    or f[6] ~= is_master then
  redis.call('HSET', key, 'tenant_id', tenant, 'project_id', project, 'agent_identity', ARGV[6],
    'agent_surface', ARGV[4], 'machine_id', ARGV[5], 'is_master', is_master, 'host', ARGV[5],
    'name', ARGV[6])
  redis.call('HSETNX', key, 'registered_at', iso8601())
  redis.call('HSETNX', key, 'priority', ARGV[8])
end
if redis.call('PTTL', key) < ttl then
  redis.call('PEXPIREAT', key, from_now(ttl))
end
local is_news = redis.call('SADD', set, session) == 1 or f[4] ~= ARGV[5] or f[5] ~= ARGV[6]
-- Agents tell each other nothing.
if is_news and tenant ~= 'tenure.agents' then
  redis.call('HSET', names_of(set), session, cjson.encode({ ARGV[6], ARGV[5] }))
end
have_swept(ARGV[13], set)
for _, other in ipairs(redis.call('SRANDMEMBER', set, LOOKED_AT)) do
  if redis.call('EXISTS', ARGV[9] .. other) == 0 then
    reap(set, other, ARGV[10])
  end
end
return 1
