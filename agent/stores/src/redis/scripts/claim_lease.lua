-- Claims a lease, or a place in its queue, or changes what the routing table says, or will say, of it.
--
-- KEYS  1 lease, HASH  2 record of the claim  3 fence  4 names of leases, SET
--       5 version of the routing table, also its channel  6 queue  7 when its waiters' time is up
--       8 its waiters by session
-- ARGV  1 claim  2 kind:name  3 session  4 host  5 name  6 ttl, ms  7 floor of tokens
--       8 what records start with  9 channel of the agent  10 1 to queue if taken  11 most waiters
--       12 lease  13 grace, ms  14 address  15 proxy_id  16 partition  17 status
--       18 claim that makes way, or empty  19 if nobody has renewed it for so long, ms
--       20 sets to sweep, ZSET
-- Returns {'held', token} | {'waiting', position} | {'contended', ms until free or -1, nil, holder}
-- | {'gone', reason} | {'quarantined', ms}. Writes nothing if contended.

local main, key, routes = KEYS[1], KEYS[2], KEYS[5]
local ttl, grace = tonumber(ARGV[6]), tonumber(ARGV[13])
local address, proxy_id, partition, status = ARGV[14], ARGV[15], ARGV[16], ARGV[17]

local is_known = redis.call('EXISTS', main, key, KEYS[6]) > 0
judge(is_known and 'GET' or 'INCR')
is_known = is_known or grants_in
if is_known then
-- PRELUDE

local claim = claim_arguments()
local q = queue_of(main, KEYS[6], KEYS[7], KEYS[3], claim.records, claim.floor)
q.sessions, q.leases, q.routes, q.name = KEYS[8], KEYS[4], routes, ARGV[12]
q.sets = ARGV[20]

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
look_lease(q)
if record and record.place then
  -- Perhaps it has been granted just now.
  record = read_record(key)
end
local lease = read_lease(main)
if lease and lease.owner == claim.id and not (record and record.gone) then
  beat_lease(main, key, routes, lease, claim.ttl)
  change_attributes(lease)
  return { 'held', lease.token }
end
if record then
  local answer = answer_again(q, record, claim, 'conflict')
  if answer and answer[1] == 'waiting' then
    redis.call('HSET', key, 'address', address, 'proxy_id', proxy_id, 'partition', partition,
      'status', status)
  end
  if answer then
    return answer
  end
end

local function wait_in_line()
  return join_queue(q, key, record, claim, 0, 'grace', grace, 'address', address, 'proxy_id', proxy_id,
    'partition', partition, 'status', status)
end

if grants_in then
  return has_place(q, claim) and wait_in_line() or { 'quarantined', grants_in }
end
if lease then
  local own = lease.session == claim.session
  if lease.owner == ARGV[18] and unbeaten(lease) >= tonumber(ARGV[19]) then
    local former = read_record(q.records .. lease.owner)
    end_record(q.records .. lease.owner, former, 'conflict')
    if former then
      tell_lost(former, lease.owner)
    end
  elseif not (own and lease.in_grace) then
    if has_place(q, claim) then
      return wait_in_line()
    end
    local left = lease.left
    if own and left >= 0 then
      left = left - lease.grace
    end
    return { 'contended', left, false, lease_entry(lease) }
  else
    end_former(q, lease)
  end
end
end

local token = next_token(KEYS[3], ARGV[7])
if is_known then
  redis.call('DEL', main, key)
end
local version = redis.call('INCR', routes)
if version == 1 then
  -- As next_version() begins.
  version = now_ms
  redis.call('SET', routes, version)
end
redis.call('PUBLISH', routes, version)
redis.call('HSET', main, 'owner', ARGV[1], 'session', ARGV[3], 'token', token, 'address', address,
  'proxy_id', proxy_id, 'partition', partition, 'status', status, 'holder_status', status,
  'granted_at', now_ms, 'renewed_at', now_ms, 'ttl_ms', ARGV[6], 'grace_ms', ARGV[13], 'version', version,
  'host', ARGV[4], 'name', ARGV[5])
redis.call('PEXPIREAT', main, now_ms + ttl + grace)
redis.call('SADD', KEYS[4], ARGV[12])
have_swept(ARGV[20], KEYS[4])
redis.call('HSET', key, 'r', ARGV[2], 'session', ARGV[3], 'host', ARGV[4], 'name', ARGV[5], 'ttl', ARGV[6],
  'since', now_us, 'granted', now_us, 'token', token, 'agent', ARGV[9])
redis.call('PEXPIREAT', key, now_ms + ttl + grace + KEEP)
return { 'held', token }
