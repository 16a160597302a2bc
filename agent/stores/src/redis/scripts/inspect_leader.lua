-- Says who holds a role and who waits for it. Writes nothing.
--
-- KEYS  1 leader, STRING  2 queue  3 when its waiters' time is up
-- ARGV  1 what records start with  2 how many waiters to name
-- Returns {nil, holders, waiters, sessions, nil, ms until the holder's time is up or -1, how many holders,
-- waiters and sessions there are}.

local holder = redis.call('GET', KEYS[1])
local holders = {}
if holder then
  holders[1] = holder_entry(holder, read_record(ARGV[1] .. holder))
end
local waiters, waiting = waiters_of(KEYS[2], KEYS[3], ARGV[1], tonumber(ARGV[2]))
return { false, holders, waiters, {}, false, redis.call('PTTL', KEYS[1]), #holders, waiting, 0 }
