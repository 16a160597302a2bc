-- Puts keys of gateways back into a server that came back without its data: one where no key was ever changed.
--
-- KEYS  1 ids of all keys, SET  2 version, STRING
-- ARGV  1 what keys start with  2 the next version  3 number of fields of a key, n; for each key: its id
--       n fields and n values in turn, of which those without a value are left out
-- Returns 1 if it did, 0 if keys were changed meanwhile. All of them in one step: a part would look like a revocation
-- of the others.

local ids, version = KEYS[1], KEYS[2]
if redis.call('EXISTS', ids, version) > 0 then
  return 0
end
local step = 1 + 2 * tonumber(ARGV[3])
for at = 4, #ARGV, step do
  for i = at + 1, at + step - 1, 2 do
    if ARGV[i + 1] ~= '' then
      redis.call('HSET', ARGV[1] .. ARGV[at], ARGV[i], ARGV[i + 1])
    end
  end
  redis.call('SADD', ids, ARGV[at])
end
redis.call('SET', version, ARGV[2])
return 1
