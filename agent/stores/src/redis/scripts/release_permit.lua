-- Gives a permit or a place in the queue back, grants who is first, and leaves a mark that refuses a late
-- copy of the claim.
--
-- KEYS  1 main  2 record of the claim  3 fence  4 ttl  5 waiting  6 waiting_heartbeat  7 max
-- ARGV  1 claim  2 kind:name  3 member  4 floor of tokens  5 what records start with
--       6 what notifications start with
-- Returns 1 if it held or waited, else 0.

local key, member = KEYS[2], ARGV[3]
local s = {
  main = KEYS[1], fence = KEYS[3], ttl = KEYS[4], waiting = KEYS[5], hb = KEYS[6], max = KEYS[7],
  records = ARGV[5], notifications = ARGV[6], floor = tonumber(ARGV[4]), shared = true,
}
local record = read_record(key)
if is_of_another(record, ARGV[2]) then
  return 0
end
purge(s)
local removed = redis.call('ZREM', s.main, member) + redis.call('ZREM', s.waiting, member)
redis.call('ZREM', s.ttl, member)
redis.call('ZREM', s.hb, member)
redis.call('DEL', s.notifications .. member)
end_record(key, record, 'released')
grant_heads(s, limit_of(s))
drop_unused(s)
return removed > 0 and 1 or 0
