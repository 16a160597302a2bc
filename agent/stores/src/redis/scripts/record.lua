-- Keeps changes of who holds what for people who ask later. Told twice a change is kept once.
--
-- KEYS  1 all histories, by their last change, us, and for each change the history of its resource
-- ARGV  1 most changes of a resource  2 how long they are kept, ms  3 most histories, and for each change:
--       1 how long ago it happened, us  2 the change, the same each time it is told
-- Returns how many there were.

local all = KEYS[1]

for i = 2, #KEYS do
  local key = KEYS[i]
  local at = string.format('%.0f', now_us - ARGV[2 * i])
  local added = redis.pcall('ZADD', key, 'NX', at, ARGV[2 * i + 1])
  -- A key of somebody else's keeps no history, and does not keep others from theirs.
  if type(added) == 'table' and not string.find(added.err, 'WRONGTYPE', 1, true) then
    return added
  end
  if type(added) == 'number' then
    redis.call('ZADD', all, now_us, key)
    local surplus = redis.call('ZCARD', key) - ARGV[1]
    if surplus > 0 then
      redis.call('ZREM', key, unpack(redis.call('ZRANGE', key, 0, surplus - 1)))
    end
    redis.call('PEXPIREAT', key, now_ms + ARGV[2])
  end
end
-- Of too many those go that have not changed for longest.
for _ = 1, redis.call('ZCARD', all) - ARGV[3] do
  redis.call('DEL', redis.call('ZPOPMIN', all)[1])
end
redis.call('PEXPIREAT', all, now_ms + ARGV[2])
return #KEYS - 1
