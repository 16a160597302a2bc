-- Releases a role, or a place in its queue, grants whoever waits first, and leaves a mark that refuses a late
-- copy of the claim.
--
-- KEYS  1 leader, STRING  2 record of the claim  3 fence  4 queue  5 when its waiters' time is up
-- ARGV  1 claim  2 kind:name  3 floor of tokens  4 what records start with
-- Returns 1 if it held or waited, else 0.

local main, key, id = KEYS[1], KEYS[2], ARGV[1]

local had = redis.call('GET', main) == id
local known = redis.call('HMGET', key, 'r', 'gone')
if had and known[1] == ARGV[2] and not known[2] and redis.call('EXISTS', KEYS[4]) == 0 then
  redis.call('DEL', main, key)
  redis.call('HSET', key, 'gone', 'released')
  redis.call('PEXPIREAT', key, now_ms + KEEP)
  return 1
end
-- PRELUDE

local q = queue_of(main, KEYS[4], KEYS[5], KEYS[3], ARGV[4], tonumber(ARGV[3]))
local record = read_record(key)
if is_of_another(record, ARGV[2]) then
  return 0
end
if had then
  redis.call('DEL', main)
else
  purge_queue(q)
  had = give_up(q, record)
end
end_record(key, record, 'released')
look_leader(q)
return had and 1 or 0
