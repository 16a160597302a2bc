-- Shared by all scripts: the records of claims.

local function whole(number)
  return string.format('%.0f', number)
end

-- A claim's record, or nil. `gone` says why it ended; without a `token` it waits.
local function read_record(key)
  local f = redis.call('HMGET', key, 'r', 'gone', 'token', 'ttl', 'top', 'session', 'limit', 'notified',
    'host', 'name', 'granted', 'since', 'priority', 'place', 'agent', 'beaten')
  if not f[1] and not f[2] then
    return nil
  end
  return {
    key = key, r = f[1], gone = f[2], token = tonumber(f[3]), ttl = tonumber(f[4]) or 0,
    top = tonumber(f[5]), session = f[6], limit = tonumber(f[7]), notified = f[8], host = f[9],
    name = f[10], granted = tonumber(f[11]), since = tonumber(f[12]), priority = tonumber(f[13]),
    place = f[14], agent = f[15], beaten = tonumber(f[16]),
  }
end

-- As much of it as a beat needs: of thousands a second, the rest would be most of the work.
local function read_briefly(key)
  local f = redis.call('HMGET', key, 'r', 'gone', 'token', 'ttl', 'top', 'place', 'agent')
  if not f[1] and not f[2] then
    return nil
  end
  return {
    key = key, r = f[1], gone = f[2], token = tonumber(f[3]), ttl = tonumber(f[4]) or 0,
    top = tonumber(f[5]), place = f[6], agent = f[7],
  }
end

-- The instant `ms` from now, as PEXPIREAT wants it; beats of one call mostly want the same.
local instants = {}
local function from_now(ms)
  local at = instants[ms]
  if not at then
    at = whole(now_ms + ms)
    instants[ms] = at
  end
  return at
end

-- Keeps a record `live` ms, and as long as claims are remembered after that.
local function keep_record(key, live)
  redis.call('PEXPIREAT', key, from_now(live + KEEP))
end

-- A beat of `ttl` ms. Never shortens: the holder may go by the answer to a longer one.
-- Returns whether what the record is about is to expire `ttl` ms from now.
local function beat_record(record, ttl)
  local top = record.top or record.ttl
  if ttl < top then
    -- The rest of the longer ttl does not tell when this one was.
    redis.call('HSET', record.key, 'beaten', whole(now_ms))
  end
  if ttl < top and redis.call('PTTL', record.key) - KEEP > ttl then
    return false
  end
  if ttl > top then
    redis.call('HSET', record.key, 'top', ttl)
  end
  keep_record(record.key, ttl)
  return true
end

-- Nothing remains of an ended claim but the reason. The first one stays, but expiry gives way: an
-- expired claim may be claimed anew, and one released after that must not. `words` are those of a
-- revocation, if there are any.
local function end_record(key, record, reason, words)
  if record and record.gone and record.gone ~= 'expired' then
    reason = record.gone
    words = reason == 'revoked' and redis.call('HGET', key, 'words')
  end
  redis.call('DEL', key)
  redis.call('HSET', key, 'gone', reason)
  if words and words ~= '' then
    redis.call('HSET', key, 'words', words)
  end
  keep_record(key, 0)
end

-- Notes which agent has a claim: it is told what becomes of it.
local function adopt(record, agent)
  if record.agent ~= agent then
    redis.call('HSET', record.key, 'agent', agent)
  end
end

-- Tells the agent that has a claim that the grant was taken away.
local function tell_lost(record, id)
  if record.agent then
    redis.call('PUBLISH', record.agent, id .. ' lost')
  end
end

-- Why a claim that is not where its record says is gone; `taken` if its time was not up.
local function why_gone(record, taken)
  if record.gone then
    return record.gone
  end
  if redis.call('PTTL', record.key) <= KEEP then
    return 'expired'
  end
  return taken
end

-- Whether a record is of another resource than the caller says.
local function is_of_another(record, resource)
  return record and record.r and record.r ~= resource
end

-- Tells the agent of a waiter what it was granted: the token, the present ms, and for how many of them it is
-- kept. The agent goes by that until a beat is answered.
local function tell_granted(record, claim, token, ttl, limit)
  if record.agent then
    local told = { claim, whole(token), whole(now_ms), whole(ttl), limit and whole(limit) }
    redis.call('PUBLISH', record.agent, table.concat(told, ' '))
  end
end

-- The arguments that every claim begins with.
local function claim_arguments()
  return {
    id = ARGV[1], resource = ARGV[2], session = ARGV[3], host = ARGV[4], name = ARGV[5],
    ttl = tonumber(ARGV[6]), floor = tonumber(ARGV[7]), records = ARGV[8], agent = ARGV[9],
    enqueue = ARGV[10] == '1', queue_max = tonumber(ARGV[11]),
  }
end

-- A holder or waiter as standings have it; `record` is nil for one of another program.
local function entry(value, record)
  if record and not record.gone and record.session then
    local since = record.granted or record.since or now_us
    return { value, record.session, record.host, record.name, record.token or 0,
      math.max(0, now_us - since) }
  end
  return { value, false, false, false, 0, 0 }
end

-- The same for a holder, and for how long nobody has renewed it, ms: each of these is at least that, and one is it.
local function holder_entry(value, record)
  local told = entry(value, record)
  if record and record.token and not record.gone then
    local longest = math.max(record.ttl, record.top or 0)
    local unbeaten = longest + KEEP - redis.call('PTTL', record.key)
    unbeaten = math.min(unbeaten, math.floor((now_us - (record.granted or now_us)) / 1000))
    told[7] = math.max(0, math.min(unbeaten, now_ms - (record.beaten or 0)))
  end
  return told
end
