-- Releases a lease, also in its grace, and leaves a mark that refuses a late copy of its claim.
--
-- KEYS  1 lease, HASH  2 record of the claim  3 names of leases, SET
--       4 version of the routing table, also its channel
-- ARGV  1 claim  2 kind:name  3 lease
-- Returns 1 if it was held, else 0.

local main, key, id = KEYS[1], KEYS[2], ARGV[1]

local held = redis.call('HGET', main, 'owner') == id
local known = redis.call('HMGET', key, 'r', 'gone')
if held and known[1] == ARGV[2] and not known[2] then
  redis.call('DEL', main, key)
  redis.call('SREM', KEYS[3], ARGV[3])
  redis.call('PUBLISH', KEYS[4], redis.call('INCR', KEYS[4]))
  redis.call('HSET', key, 'gone', 'released')
  redis.call('PEXPIREAT', key, now_ms + KEEP)
  return 1
end
-- PRELUDE

local record = read_record(key)
if is_of_another(record, ARGV[2]) then
  return 0
end
if held then
  redis.call('DEL', main)
  redis.call('SREM', KEYS[3], ARGV[3])
  next_version(KEYS[4])
end
end_record(key, record, 'released')
return held and 1 or 0
