-- Stands for caretaker: the one agent that looks after semaphores of other programs. Who is it already
-- stays it as long as it stands again in time.
--
-- KEYS  1 caretaker, STRING
-- ARGV  1 agent  2 term, ms
-- Returns 0 if it is this agent, else ms until another may be. Writes nothing if it is another.

local holder = redis.call('GET', KEYS[1])
local left = holder and holder ~= ARGV[1] and redis.call('PTTL', KEYS[1]) or -1
if left >= 0 then
  return left + 1
end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 0
