-- Shared by what concerns semaphores, which other programs use too: keys and members are those of the
-- Python package asyncio-advanced-semaphores 0.0.6 to 0.0.9.
--
-- A semaphore is a table of its keys (main, ttl, waiting, hb, max), the fence, what records and
-- notifications start with, the floor of tokens, and whether the caller shares it.

-- How long a permit is kept for a waiter until a beat of it confirms, s: an agent does that at once, unless
-- it is dead; other programs look once a second.
local CONFIRM_WITHIN, OTHERS_CONFIRM_WITHIN = 5, 10
-- Keys that not even the caller shares outlive their last member by this, s.
local OUTLIVE = 10
-- Most members that one call purges of each set, and most waiters that it grants: those confirm, and each
-- beat grants the next.
local PURGE_MAX, GRANT_MAX = 500, 100

local now_s = now_us / 1000000

local function score(seconds)
  return string.format('%.17g', seconds)
end

-- The hold of a member, if it can be one of a Tenure agent.
local function hold_of(member)
  if #member ~= 32 then
    return nil
  end
  return member:sub(1, 8) .. '-' .. member:sub(9, 12) .. '-' .. member:sub(13, 16) .. '-'
    .. member:sub(17, 20) .. '-' .. member:sub(21)
end

local function record_of(s, member)
  local hold = hold_of(member)
  return hold and read_record(s.records .. hold) or nil
end

-- Takes members out of both sets whose time in `times` is up.
local function take_out(times, first, second)
  local dead = redis.call('ZRANGEBYSCORE', times, '-inf', score(now_s), 'LIMIT', 0, PURGE_MAX)
  if #dead > 0 then
    redis.call('ZREM', first, unpack(dead))
    redis.call('ZREM', second, unpack(dead))
  end
end

-- Takes out whose time is up.
local function purge(s)
  take_out(s.ttl, s.main, s.ttl)
  take_out(s.main, s.ttl, s.main)
  take_out(s.hb, s.waiting, s.hb)
end

-- Raises the expiry of keys, never lowers one. Other programs set it to what suits themselves.
-- Far from the wanted time nothing is written, or every look would be a change.
local function keep_keys(s, keys)
  local wanted, enough = FOREVER * 1000, FOREVER * 500
  if not s.shared then
    local latest = 0
    for _, set in ipairs({ s.main, s.hb }) do
      latest = math.max(latest, tonumber(redis.call('ZREVRANGE', set, 0, 0, 'WITHSCORES')[2]) or 0)
    end
    enough = math.max(0, latest - now_s + OUTLIVE) * 1000
    wanted = enough + OUTLIVE * 1000
  end
  for _, key in ipairs(keys) do
    local left = redis.call('PTTL', s[key])
    -- Only a key that Tenure made has none yet.
    if left ~= -2 and left < enough and (left ~= -1 or s.shared) then
      redis.call('PEXPIREAT', s[key], from_now(wanted))
    end
  end
end

-- The limit in force. A client with a short ttl of its own lets it expire: then it is as the record of
-- somebody who holds or waits says, or that of the next waiter.
local function limit_of(s, record)
  local limit = tonumber(redis.call('GET', s.max))
  if limit then
    return limit
  end
  if not record then
    local head = redis.call('ZRANGE', s.waiting, 0, 0)[1]
    record = head and record_of(s, head)
  end
  limit = record and record.limit
  if limit then
    redis.call('SET', s.max, limit, 'EX', FOREVER)
  end
  return limit
end

-- Gives a permit to a claim. Members of `ttl` without a longest duration stand in the order of their
-- grants: two of one call are a µs apart.
local function grant(s, key, member, ttl)
  local token = next_token(s.fence, s.floor)
  s.granted = (s.granted or 0) + 1
  redis.call('ZADD', s.main, score(now_s + ttl / 1000), member)
  redis.call('ZADD', s.ttl, score(now_s + NO_TTL + s.granted / 1000000), member)
  redis.call('HSET', key, 'token', whole(token), 'granted', whole(now_us))
  return token
end

-- Grants a waiter that is taken out of the queue. Whether that took a permit.
local function grant_waiter(s, member, limit)
  local record = record_of(s, member)
  local seconds, took = OTHERS_CONFIRM_WITHIN, true
  if record then
    if record.gone or redis.call('PTTL', record.key) <= KEEP then
      return false
    end
    local ttl = math.min(record.ttl, CONFIRM_WITHIN * 1000)
    seconds = math.max(1, math.ceil(ttl / 1000))
    local token = grant(s, record.key, member, ttl)
    redis.call('HSET', record.key, 'notified', 1)
    keep_record(record.key, ttl)
    tell_granted(record, hold_of(member), token, ttl, limit)
  else
    -- One that has a permit already has missed that it was told.
    took = redis.call('ZADD', s.main, 'NX', score(now_s + OTHERS_CONFIRM_WITHIN), member) == 1
  end
  local notification = s.notifications .. member
  redis.call('RPUSH', notification, '1')
  redis.call('EXPIRE', notification, seconds + OUTLIVE)
  return took
end

-- Gives free permits to whoever waits first.
local function grant_heads(s, limit)
  if not limit or grants_in or redis.call('ZCARD', s.waiting) == 0 then
    return
  end
  local free = limit - redis.call('ZCARD', s.main)
  local granted = false
  for _ = 1, GRANT_MAX do
    local head = free > 0 and redis.call('ZPOPMIN', s.waiting)[1]
    if not head then
      break
    end
    -- More may be dead than one call purges.
    local ends = tonumber(redis.call('ZSCORE', s.hb, head))
    redis.call('ZREM', s.hb, head)
    if not (ends and ends <= now_s) and grant_waiter(s, head, limit) then
      free = free - 1
      granted = true
    end
  end
  if granted then
    keep_keys(s, { 'main', 'ttl' })
  end
end

-- With its last user a semaphore's limit goes, too.
local function drop_unused(s)
  if redis.call('ZCARD', s.main) + redis.call('ZCARD', s.waiting) == 0 then
    redis.call('DEL', s.max, s.ttl, s.hb)
  end
end

-- A beat of a claim that holds a permit or waits for one, or nil if it does neither. `s.limit` is the
-- limit in force, as far as it is known, and `s.agent` the channel of the agent that beats.
local function beat_permit(s, record, member, ttl)
  if redis.call('ZSCORE', s.main, member) then
    s.limit = s.limit or limit_of(s, record)
    local token = record.token
    local longer = beat_record(record, ttl)
    if not token then
      -- Another program's client granted it.
      token = grant(s, record.key, member, ttl)
      keep_keys(s, { 'main', 'ttl' })
      longer = false
    end
    if longer then
      redis.call('ZADD', s.main, score(now_s + ttl / 1000), member)
    end
    if record.notified or not record.token then
      redis.call('DEL', s.notifications .. member)
      redis.call('HDEL', record.key, 'notified')
    end
    return { 'held', token, s.limit or -1 }
  end
  local place = redis.call('ZRANK', s.waiting, member)
  if not place then
    return nil
  end
  s.limit = s.limit or limit_of(s, record)
  if beat_record(record, ttl) then
    redis.call('ZADD', s.hb, score(now_s + ttl / 1000), member)
  end
  if record.agent ~= s.agent then
    redis.call('HSET', record.key, 'agent', s.agent)
  end
  return { 'waiting', place + 1, s.limit or -1 }
end
