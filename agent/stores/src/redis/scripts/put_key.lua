-- Adds a key of gateways, or puts it in the place of one with its id. For a join key it is added once, and never put
-- back: whoever repeats an exchange learns what became of its key.
--
-- KEYS  1 key, HASH  2 ids of all keys, SET  3 version, STRING  4 join key, HASH, if it is for one
-- ARGV  1 id  2 sha256  3 the next version  4 most keys  5 … fields and values of the key

local key, ids, version, join = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local by = ARGV[1] .. ':' .. ARGV[2]
local sha256 = redis.call('HGET', key, 'sha256')
if join then
  local found = redis.call('HMGET', join, 'sha256', 'joined')
  if not found[1] then
    return 'gone'
  end
  if found[2] == by then
    return sha256 == ARGV[2] and 'again' or 'revoked'
  end
  if found[2] then
    return 'used'
  end
  -- Also if it is the join key itself.
  if sha256 then
    return 'taken'
  end
end
if redis.call('SCARD', ids) >= tonumber(ARGV[4]) and not sha256 then
  return 'full'
end
if join then
  redis.call('HSET', join, 'joined', by)
end
redis.call('HSET', key, unpack(ARGV, 5))
redis.call('SADD', ids, ARGV[1])
redis.call('SET', version, ARGV[3])
return 'done'
