-- Releases a lease, also in its grace, or a place in its queue, grants whoever waits first, and leaves a mark
-- that refuses a late copy of its claim.
--
-- KEYS  1 lease, HASH  2 record of the claim  3 names of leases, SET
--       4 version of the routing table, also its channel  5 fence  6 queue
--       7 when its waiters' time is up  8 its waiters by session
-- ARGV  1 claim  2 kind:name  3 floor of tokens  4 what records start with  5 lease
--       6 sets to sweep, ZSET
-- Returns 1 if it held or waited, else 0.

local main, key, id = KEYS[1], KEYS[2], ARGV[1]

local had = redis.call('HGET', main, 'owner') == id
local known = redis.call('HMGET', key, 'r', 'gone')
if had and known[1] == ARGV[2] and not known[2] and redis.call('EXISTS', KEYS[6]) == 0 then
  redis.call('DEL', main, key)
  redis.call('SREM', KEYS[3], ARGV[5])
  redis.call('PUBLISH', KEYS[4], redis.call('INCR', KEYS[4]))
  redis.call('HSET', key, 'gone', 'released')
  redis.call('PEXPIREAT', key, now_ms + KEEP)
  return 1
end
-- PRELUDE

local q = queue_of(main, KEYS[6], KEYS[7], KEYS[5], ARGV[4], tonumber(ARGV[3]))
q.sessions, q.leases, q.routes, q.name = KEYS[8], KEYS[3], KEYS[4], ARGV[5]
q.sets = ARGV[6]
local record = read_record(key)
if is_of_another(record, ARGV[2]) then
  return 0
end
purge_queue(q)
if had then
  redis.call('DEL', main)
  redis.call('SREM', q.leases, q.name)
  next_version(q.routes)
else
  had = give_up(q, record)
end
end_record(key, record, 'released')
look_lease(q)
return had and 1 or 0
