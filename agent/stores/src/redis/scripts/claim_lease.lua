-- Claims a lease, or changes what the routing table says of it.
--
-- KEYS  1 lease, HASH  2 record of the claim  3 fence  4 names of leases, SET
--       5 version of the routing table, also its channel
-- ARGV  1 claim  2 kind:name  3 session  4 host  5 name  6 ttl, ms  7 floor of tokens
--       8 what records start with  9 lease  10 grace, ms  11 address  12 proxy_id  13 partition  14 status
-- Returns {'held', token} | {'contended', ms until free or -1, nil, holder} | {'gone', reason}.
-- Writes nothing if contended.

local main, key, fence, leases, routes = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local ttl, grace = tonumber(ARGV[6]), tonumber(ARGV[10])
local address, proxy_id, partition, status = ARGV[11], ARGV[12], ARGV[13], ARGV[14]

local is_known = redis.call('EXISTS', main, key) > 0
if is_known then
-- PRELUDE

local claim = claim_arguments()

-- A repeated claim may bring other attributes.
local function change_attributes(lease)
  local f = redis.call('HMGET', main, 'address', 'proxy_id', 'partition')
  if f[1] ~= address or f[2] ~= proxy_id or f[3] ~= partition or lease.holder_status ~= status then
    redis.call('HSET', main, 'address', address, 'proxy_id', proxy_id, 'partition', partition,
      'status', status, 'holder_status', status, 'version', next_version(routes))
  end
end

local record = read_record(key)
if is_of_another(record, claim.resource) then
  return { 'gone', 'conflict' }
end
local lease = read_lease(main)
if lease and lease.owner == claim.id and not (record and record.gone) then
  beat_lease(main, key, routes, lease, ttl)
  change_attributes(lease)
  return { 'held', lease.token }
end
if record then
  local reason = why_gone(record, 'conflict')
  if reason ~= 'expired' then
    return { 'gone', reason }
  end
end

if lease then
  local own = lease.session == claim.session
  if not (own and lease.in_grace) then
    local left = lease.left
    if own and left >= 0 then
      left = left - lease.grace
    end
    return { 'contended', left, false, lease_entry(lease) }
  end
  local former = claim.records .. lease.owner
  end_record(former, read_record(former), 'expired')
end
end

local token = next_token(fence, ARGV[7])
if is_known then
  redis.call('DEL', main, key)
end
local version = redis.call('INCR', routes)
redis.call('PUBLISH', routes, version)
redis.call('HSET', main, 'owner', ARGV[1], 'session', ARGV[3], 'token', token, 'address', address,
  'proxy_id', proxy_id, 'partition', partition, 'status', status, 'holder_status', status,
  'granted_at', now_ms, 'renewed_at', now_ms, 'ttl_ms', ARGV[6], 'grace_ms', ARGV[10], 'version', version,
  'host', ARGV[4], 'name', ARGV[5])
redis.call('PEXPIREAT', main, now_ms + ttl + grace)
redis.call('SADD', leases, ARGV[9])
redis.call('HSET', key, 'r', ARGV[2], 'session', ARGV[3], 'host', ARGV[4], 'name', ARGV[5], 'ttl', ARGV[6],
  'since', now_us, 'granted', now_us, 'token', token)
redis.call('PEXPIREAT', key, now_ms + ttl + grace + KEEP)
return { 'held', token }
