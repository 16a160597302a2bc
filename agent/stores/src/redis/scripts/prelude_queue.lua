-- Shared by what concerns leaders, masters and leases: who waits for one of them, in order. Semaphores have
-- queues of their own, which other programs share.
--
-- A queue is a table of its keys (main, queue, ends, and for leases sessions), the fence, what records start
-- with, the floor of tokens, and what its kind needs to grant. Places are members of score 0, so they are in
-- the order of their letters: 8 hex digits of the rank, 16 of the µs, then the claim.

-- How long a grant is kept for a waiter until a beat of it confirms, ms: its agent is told, and sends one at
-- once unless it is dead.
local UNCONFIRMED = 5000
-- Most waiters that one call takes out because their time is up, and most that it looks at for one that lives.
local DEAD_MAX, LOOKED_AT = 500, 100
-- How far a clock may have been set back, µs, for nobody to be overtaken.
local SET_BACK = 1000000
-- Where the claim begins in a place.
local CLAIM_AT = 25
-- Programs that poll find a key free only between two holders, and a grant within a release leaves no such moment.
-- So a free resource is left open to them for a moment, ms, once it went from waiter to waiter for so long: where
-- one that polls was seen in the last day, and, to find out, where hand-overs follow each other this closely.
local LEFT_OPEN, POLLED_EVERY, PROBED_EVERY, CLOSELY = 150, 5000, 30000, 2000
local POLLED = 24 * 3600 * 1000

-- The keys of a queue, and what all kinds grant with.
local function queue_of(main, queue, ends, fence, records, floor)
  return { main = main, queue = queue, ends = ends, fence = fence, records = records, floor = floor }
end

local function is_empty(q)
  return redis.call('EXISTS', q.queue) == 0
end

-- Redis keeps a key through the very ms of its expiry; who waits for it does not.
local function is_taken(q)
  local left = redis.call('PTTL', q.main)
  return left > 0 or left == -1
end

-- HASH: since when the resource went from waiter to waiter, when it last did, until when it is left open, and
-- whether a program that polls was seen; instants in ms.
local function turns_of(q)
  return (q.ends:gsub('queue_ends:', 'queue_turns:', 1))
end

-- The holder is none of ours, so somebody polls.
local function note_polled(q)
  local turns = turns_of(q)
  redis.call('HSET', turns, 'polled', '1')
  redis.call('PEXPIREAT', turns, from_now(POLLED))
end

-- Whether a free resource that somebody waits for is left open to programs that poll. If not, it is to be granted.
local function is_left_open(q)
  local turns = turns_of(q)
  local f = redis.call('HMGET', turns, 'open', 'since', 'last', 'polled')
  local open, since, last, polled = tonumber(f[1]), tonumber(f[2]), tonumber(f[3]), f[4]
  if open and now_ms < open and open <= now_ms + LEFT_OPEN then
    return true
  end
  local every = polled and POLLED_EVERY or PROBED_EVERY
  local begins = open or not since or now_ms < since or not polled and now_ms - last > CLOSELY
  if not begins and now_ms - since >= every then
    redis.call('HSET', turns, 'open', whole(now_ms + LEFT_OPEN))
    return true
  end
  if begins then
    redis.call('HDEL', turns, 'open')
    redis.call('HSET', turns, 'since', whole(now_ms))
  end
  redis.call('HSET', turns, 'last', whole(now_ms))
  if not polled then
    redis.call('PEXPIREAT', turns, from_now(PROBED_EVERY + CLOSELY))
  end
  return false
end

-- Takes places out of a queue.
local function leave_queue(q, places)
  redis.call('ZREM', q.queue, unpack(places))
  redis.call('ZREM', q.ends, unpack(places))
  if q.sessions then
    for _, place in ipairs(places) do
      local session = redis.call('HGET', q.records .. place:sub(CLAIM_AT), 'session')
      redis.call('ZREM', q.sessions, (session or '') .. place)
    end
  end
end

-- Takes out whose time is up.
local function purge_queue(q)
  local dead = redis.call('ZRANGEBYSCORE', q.ends, '-inf', whole(now_ms), 'LIMIT', 0, DEAD_MAX)
  if #dead > 0 then
    leave_queue(q, dead)
  end
end

-- The first waiter that lives: its place and its record. Of a `session` only, if it is given.
local function first_waiter(q, session)
  for _ = 1, LOOKED_AT do
    local place
    if session then
      local found = redis.call('ZRANGEBYLEX', q.sessions, '[' .. session, '(' .. session .. 'g', 'LIMIT', 0, 1)[1]
      place = found and found:sub(#session + 1)
    else
      place = redis.call('ZRANGE', q.queue, 0, 0)[1]
    end
    if not place then
      return nil
    end
    local record = read_record(q.records .. place:sub(CLAIM_AT))
    -- More may be dead than one call takes out.
    local ends = tonumber(redis.call('ZSCORE', q.ends, place))
    if record and not record.gone and record.place == place and ends and ends > now_ms then
      return place, record
    end
    leave_queue(q, { place })
  end
end

-- Grants a waiter, which leaves the queue. Returns the token, and for how long, ms. Its agent is to be told when all
-- of it is written.
local function grant_place(q, place, record)
  leave_queue(q, { place })
  local token = next_token(q.fence, q.floor)
  local ttl = math.min(record.ttl, UNCONFIRMED)
  redis.call('HSET', record.key, 'token', whole(token), 'granted', whole(now_us))
  redis.call('HDEL', record.key, 'place')
  keep_record(record.key, ttl)
  return token, ttl
end

-- The keys of a queue live as long as one of its waiters may, and all of them equally long.
local function keep_queue(q, ttl)
  if redis.call('PTTL', q.ends) >= ttl then
    return
  end
  for _, key in ipairs({ q.queue, q.ends, q.sessions }) do
    redis.call('PEXPIREAT', key, from_now(ttl))
  end
end

-- The higher priority comes first.
local function rank_of(priority)
  return string.format('%08x', 2147483647 - priority)
end

local function position(q, place)
  return redis.call('ZRANK', q.queue, place) + 1
end

-- Writes the record of a claim; `former` is that of an earlier copy, which expired.
local function write_record(key, former, claim, ...)
  if former then
    redis.call('DEL', key)
  end
  redis.call('HSET', key, 'r', claim.resource, 'session', claim.session, 'host', claim.host,
    'name', claim.name, 'ttl', claim.ttl, 'since', whole(now_us), 'agent', claim.agent, ...)
end

-- Puts a claim in the queue, behind those of its rank. `former` is the record of an earlier copy.
local function join_queue(q, key, former, claim, priority, ...)
  local rank = rank_of(priority)
  local last = redis.call('ZREVRANGEBYLEX', q.queue, '(' .. rank .. 'g', '[' .. rank, 'LIMIT', 0, 1)[1]
  local at, came = now_us, last and tonumber(last:sub(9, CLAIM_AT - 1), 16)
  if came and came >= at and came < at + SET_BACK then
    at = came + 1
  end
  local place = rank .. string.format('%016x', at) .. claim.id
  redis.call('ZADD', q.queue, 0, place)
  redis.call('ZADD', q.ends, whole(now_ms + claim.ttl), place)
  if q.sessions then
    redis.call('ZADD', q.sessions, 0, claim.session .. place)
  end
  write_record(key, former, claim, 'place', place, ...)
  keep_record(key, claim.ttl)
  keep_queue(q, claim.ttl)
  return { 'waiting', position(q, place) }
end

-- True if one more may wait.
local function has_place(q, claim)
  return claim.enqueue and redis.call('ZCARD', q.queue) < claim.queue_max
end

-- A beat of a claim that waits; the place, or nil if it does not wait any more.
local function beat_place(q, record, ttl, agent)
  if not record.place or not redis.call('ZSCORE', q.ends, record.place) then
    return nil
  end
  if beat_record(record, ttl) then
    redis.call('ZADD', q.ends, whole(now_ms + ttl), record.place)
    keep_queue(q, ttl)
  end
  adopt(record, agent)
  return position(q, record.place)
end

-- The answer to another copy of a claim that waits or has ended; nil if it may be claimed anew, at the end: it
-- ran out, or its place was purged. `taken` says why it is gone if its time was not up.
local function answer_again(q, record, claim, taken)
  local place = not record.gone and beat_place(q, record, claim.ttl, claim.agent)
  if place then
    return { 'waiting', place }
  end
  if record.gone or record.token then
    local reason = why_gone(record, taken)
    if reason ~= 'expired' then
      return { 'gone', reason }
    end
  end
end

-- Takes a claim that gives up out of the queue. Whether it waited.
local function give_up(q, record)
  if not record or not record.place or not redis.call('ZSCORE', q.queue, record.place) then
    return false
  end
  leave_queue(q, { record.place })
  return true
end

-- The first waiters of a queue, as standings have them, and how many there are.
local function waiters_of(queue, ends, records, count)
  local waiters = {}
  for _, place in ipairs(redis.call('ZRANGE', queue, 0, count - 1)) do
    local claim = place:sub(CLAIM_AT)
    local record = read_record(records .. claim)
    -- Those whose time is up and whom nobody has taken out yet do not count.
    if record and not record.gone and redis.call('PTTL', record.key) > KEEP then
      waiters[#waiters + 1] = entry(claim, record)
    end
  end
  return waiters, redis.call('ZCOUNT', ends, '(' .. whole(now_ms), '+inf')
end
