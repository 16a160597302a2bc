-- Tells the last changes of a resource. Writes nothing.
--
-- KEYS  1 its history
-- ARGV  1 most changes  2 how long they are kept, ms
-- Returns for each, newest first, how long ago it happened, us, and the change. None is longer than ENTRY_MAX,
-- whatever was written there.

local ENTRY_MAX = 65536

local found = redis.pcall('ZREVRANGE', KEYS[1], 0, ARGV[1] - 1, 'WITHSCORES')
local answer = {}
for i = 1, #found, 2 do
  local ago = now_us - tonumber(found[i + 1])
  if ago < ARGV[2] * 1000 and #found[i] <= ENTRY_MAX then
    answer[#answer + 1] = math.max(ago, 0)
    answer[#answer + 1] = found[i]
  end
end
return answer
