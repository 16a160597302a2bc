-- Shared by what concerns leases and the routing table.
--
-- A lease's key lives for its ttl and its grace: with less left than the grace it has expired, and only
-- the former holder's session is granted it. No timer tells when that begins: whoever reads the table
-- first notes it there.

-- What the table says of a lease in its grace.
local EXPIRING = 'expiring'

local function read_lease(main)
  local f = redis.call('HMGET', main, 'owner', 'session', 'token', 'grace_ms', 'status', 'holder_status',
    'host', 'name', 'granted_at', 'grace_wanted', 'renewed_at', 'ttl_ms')
  if not f[1] then
    return nil
  end
  local lease = {
    owner = f[1], session = f[2], token = tonumber(f[3]) or 0, grace = tonumber(f[4]) or 0,
    status = f[5], holder_status = f[6] or f[5] or 'active', host = f[7], name = f[8],
    granted_at = tonumber(f[9]), grace_wanted = tonumber(f[10]),
    renewed_at = tonumber(f[11]) or 0, ttl = tonumber(f[12]) or 0, left = redis.call('PTTL', main),
  }
  lease.in_grace = lease.left >= 0 and lease.left <= lease.grace
  return lease
end

-- The version of the routing table after a change of it, which is told. A counter that is not there begins with the
-- clock, so that a server that has lost its data goes on with greater ones.
local function next_version(routes)
  local version = redis.call('INCR', routes)
  if version == 1 then
    version = now_ms
    redis.call('SET', routes, version)
  end
  redis.call('PUBLISH', routes, version)
  return version
end

local function lease_entry(lease)
  local age = lease.granted_at and math.max(0, now_us - lease.granted_at * 1000) or 0
  return { lease.owner, lease.session, lease.host, lease.name, lease.token, age }
end

-- For how long nobody has renewed it, ms.
local function unbeaten(lease)
  return math.max(0, now_ms - lease.renewed_at)
end

-- A beat of `ttl` ms; never shortens. Out of its grace the lease is what it was before.
local function beat_lease(main, key, routes, lease, ttl)
  local live = ttl + lease.grace
  if lease.grace_wanted then
    -- It was granted while it waited, and now it is known to be there: its own grace begins.
    redis.call('HSET', main, 'grace_ms', lease.grace_wanted)
    redis.call('HDEL', main, 'grace_wanted')
    live = math.max(ttl, lease.left - lease.grace) + lease.grace_wanted
  end
  if lease.grace_wanted or lease.left < live then
    redis.call('PEXPIREAT', main, from_now(live))
    keep_record(key, live)
  end
  redis.call('HSET', main, 'renewed_at', whole(now_ms), 'ttl_ms', ttl)
  if lease.in_grace then
    redis.call('HSET', main, 'status', lease.holder_status, 'version', next_version(routes))
  end
end
