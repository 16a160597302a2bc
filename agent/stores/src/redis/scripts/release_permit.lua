-- Gives a permit or a place in the queue back, grants who is first, and leaves a mark that refuses a late
-- copy of the claim.
--
-- KEYS  1 main  2 record of the claim  3 fence  4 ttl  5 waiting  6 waiting_heartbeat  7 max
-- ARGV  1 claim  2 kind:name  3 member  4 floor of tokens  5 what records start with
--       6 what notifications start with
-- Returns 1 if it held or waited, else 0.

local main, key, ttls, queue, hb, max = KEYS[1], KEYS[2], KEYS[4], KEYS[5], KEYS[6], KEYS[7]
local member, notification, now_s = ARGV[3], ARGV[6] .. ARGV[3], now_us / 1000000

local function has_overdue(set)
  return redis.call('ZRANGEBYSCORE', set, '-inf', now_s, 'LIMIT', 0, 1)[1]
end

local known = redis.call('HMGET', key, 'r', 'gone')
local is_live = known[1] == ARGV[2] and not known[2]
if is_live and redis.call('EXISTS', queue, hb) == 0 and not has_overdue(main) and not has_overdue(ttls)
  and redis.call('ZREM', main, member) == 1 then
  redis.call('ZREM', ttls, member)
  redis.call('DEL', key, notification)
  if redis.call('EXISTS', main) == 0 then
    redis.call('DEL', max, ttls)
  end
  redis.call('HSET', key, 'gone', 'released')
  redis.call('PEXPIREAT', key, now_ms + KEEP)
  return 1
end
-- PRELUDE

local s = {
  main = main, fence = KEYS[3], ttl = ttls, waiting = queue, hb = hb, max = max,
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
redis.call('DEL', notification)
end_record(key, record, 'released')
grant_heads(s, limit_of(s))
drop_unused(s)
return removed > 0 and 1 or 0
