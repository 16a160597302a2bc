-- Claims a permit: queues, grants who is first, and confirms, in one step.
--
-- KEYS  1 main  2 record of the claim  3 fence  4 ttl  5 waiting  6 waiting_heartbeat  7 max
-- ARGV  1 claim  2 kind:name  3 session  4 host  5 name  6 ttl, ms  7 floor of tokens
--       8 what records start with  9 channel of the agent  10 1 to queue if full  11 most waiters
--       12 member  13 limit, for everybody from now on  14 what notifications start with
--       15 1 to keep the limit in force, if there is one, 2 to keep that of others: such a claim is contended
-- Returns {'held', token, limit, was} | {'waiting', position, limit, was} | {'contended', ms until the
-- oldest grant runs out or -1, limit, holder, was} | {'gone', reason} | {'quarantined', ms}; `was` is the limit that
-- this claim changed, if it did. Writes nothing if contended, except another limit than that in force, and what that
-- grants.

local main, key, ttls, queue, hb, max = KEYS[1], KEYS[2], KEYS[4], KEYS[5], KEYS[6], KEYS[7]
local member, ttl, limit, now_s = ARGV[12], tonumber(ARGV[6]), tonumber(ARGV[13]), now_us / 1000000

local function has_overdue(set)
  return redis.call('ZRANGEBYSCORE', set, '-inf', now_s, 'LIMIT', 0, 1)[1]
end

-- Nobody waits, and who holds does so with the same limit, and for some time.
local is_calm = redis.call('EXISTS', key, queue, hb) == 0
if is_calm and redis.call('EXISTS', main, ttls) > 0 then
  is_calm = redis.call('GET', max) == ARGV[13] and redis.call('ZCARD', main) < limit
    and not has_overdue(main) and not has_overdue(ttls)
end
is_calm = is_calm and limit > 0
judge(is_calm and 'INCR' or 'GET')
if is_calm and not grants_in then
  local token = next_token(KEYS[3], ARGV[7])
  -- Without GET it would replace a key of another type, which is another program's.
  redis.call('SET', max, limit, 'EX', FOREVER, 'GET')
  redis.call('ZADD', main, now_s + ttl / 1000, member)
  redis.call('ZADD', ttls, now_s + NO_TTL + 0.000001, member)
  redis.call('HSET', key, 'r', ARGV[2], 'session', ARGV[3], 'host', ARGV[4], 'name', ARGV[5], 'ttl', ARGV[6],
    'since', now_us, 'granted', now_us, 'token', token, 'limit', limit, 'agent', ARGV[9])
  redis.call('PEXPIREAT', key, now_ms + ttl + KEEP)
  redis.call('EXPIRE', main, FOREVER)
  redis.call('EXPIRE', ttls, FOREVER)
  return { 'held', token, limit }
end
-- PRELUDE

local claim = claim_arguments()
local s = {
  main = main, fence = KEYS[3], ttl = ttls, waiting = queue, hb = hb, max = max,
  records = claim.records, notifications = ARGV[14], floor = claim.floor, shared = true, agent = claim.agent,
}

local function write_record()
  redis.call('DEL', key)
  redis.call('HSET', key, 'r', claim.resource, 'session', claim.session, 'host', claim.host,
    'name', claim.name, 'ttl', ttl, 'since', now_us, 'limit', limit, 'agent', claim.agent)
  keep_record(key, ttl)
end

local record = read_record(key)
if is_of_another(record, claim.resource) then
  return { 'gone', 'conflict' }
end
if record and record.gone and record.gone ~= 'expired' then
  return { 'gone', record.gone }
end
purge(s)
if record and not record.gone then
  s.limit = limit_of(s)
  grant_heads(s, s.limit)
  record = read_record(key)
  local answer = beat_permit(s, record, member, ttl)
  if answer then
    return answer
  end
  -- A place in the queue that was purged can be taken again, at the end.
  if record.token then
    local reason = why_gone(record, 'conflict')
    if reason ~= 'expired' then
      return { 'gone', reason }
    end
  end
end

-- True if somebody of another principal uses it: the ids of one have the same end. More than can be looked at are taken
-- for others.
local LOOKED_MAX = 1000
local function is_of_others()
  if redis.call('ZCARD', s.main) + redis.call('ZCARD', s.waiting) > LOOKED_MAX then
    return true
  end
  local mark = member:sub(-12)
  for _, set in ipairs({ s.main, s.waiting }) do
    for _, user in ipairs(redis.call('ZRANGE', set, 0, -1)) do
      if user:sub(-12) ~= mark then
        return true
      end
    end
  end
  return false
end

-- What the last user left behind is not in force. A client with a short ttl of its own lets the limit
-- expire: then it is as the record of somebody who waits or holds says.
local was, is_refused = false, false
local somebody = redis.call('ZRANGE', s.waiting, 0, 0)[1] or redis.call('ZRANGE', s.main, 0, 0)[1]
if somebody then
  local record = record_of(s, somebody)
  local in_force = tonumber(redis.call('GET', s.max)) or record and record.limit
  if in_force and ARGV[15] == '1' then
    limit = in_force
  elseif in_force and in_force ~= limit and ARGV[15] == '2' and is_of_others() then
    limit, is_refused = in_force, true
  elseif in_force and in_force ~= limit then
    was = in_force
  end
end

grant_heads(s, limit)
local holders, waiting = redis.call('ZCARD', s.main), redis.call('ZCARD', s.waiting)
local answer
if not is_refused and not grants_in and holders < limit and waiting == 0 then
  write_record()
  answer = { 'held', grant(s, key, member, ttl), limit, was }
  keep_keys(s, { 'main', 'ttl' })
elseif not is_refused and claim.enqueue and waiting < claim.queue_max then
  -- A clock that was set back a little puts nobody before who came earlier; other programs' clocks may
  -- be ahead by more, and are not waited for.
  local at = now_s
  local last = tonumber(redis.call('ZREVRANGE', s.waiting, 0, 0, 'WITHSCORES')[2])
  if last and last >= at and last < at + 1 then
    at = last + 0.000001
  end
  redis.call('ZADD', s.waiting, score(at), member)
  redis.call('ZADD', s.hb, score(now_s + ttl / 1000), member)
  write_record()
  keep_keys(s, { 'waiting', 'hb' })
  answer = { 'waiting', redis.call('ZRANK', s.waiting, member) + 1, limit, was }
else
  local oldest = redis.call('ZRANGE', s.ttl, 0, 0)[1]
  if not oldest or not redis.call('ZSCORE', s.main, oldest) then
    oldest = redis.call('ZRANGE', s.main, 0, 0)[1]
  end
  if grants_in then
    answer = { 'quarantined', grants_in }
  elseif oldest then
    local left = redis.call('ZSCORE', s.main, oldest) - now_s
    answer = { 'contended', math.ceil(left * 1000), limit,
      entry(oldest, record_of(s, oldest)), was }
  else
    answer = { 'contended', -1, limit, false, was }
  end
  if holders + waiting == 0 then
    drop_unused(s)
    return answer
  end
end
if tonumber(redis.call('GET', s.max)) ~= limit then
  redis.call('SET', s.max, limit, 'EX', FOREVER)
else
  keep_keys(s, { 'max' })
end
return answer
