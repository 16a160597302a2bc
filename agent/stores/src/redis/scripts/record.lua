-- Keeps changes of who holds what for people who ask later. Told twice a change is kept once.
--
-- KEYS  for each change the history of its resource
-- ARGV  1 most changes of a resource  2 how long they are kept, ms, and for each change: 1 how long ago it
--       happened, us  2 the change, the same each time it is told
-- Returns how many there were.

for i, key in ipairs(KEYS) do
  local at = string.format('%.0f', now_us - ARGV[2 * i + 1])
  -- A key of somebody else's keeps no history, and does not keep others from theirs.
  local added = redis.pcall('ZADD', key, 'NX', at, ARGV[2 * i + 2])
  if type(added) == 'number' then
    local surplus = redis.call('ZCARD', key) - ARGV[1]
    if surplus > 0 then
      redis.call('ZREM', key, unpack(redis.call('ZRANGE', key, 0, surplus - 1)))
    end
    redis.call('PEXPIREAT', key, now_ms + ARGV[2])
  end
end
return #KEYS
