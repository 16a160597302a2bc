-- Says who holds a role. Writes nothing.
--
-- KEYS  1 leader, STRING
-- ARGV  1 what records start with
-- Returns {nil, holders, waiters, sessions, nil, ms until the holder's time is up or -1, how many holders,
-- waiters and sessions there are}.

local holder = redis.call('GET', KEYS[1])
local holders = {}
if holder then
  holders[1] = entry(holder, read_record(ARGV[1] .. holder))
end
return { false, holders, {}, {}, false, redis.call('PTTL', KEYS[1]), #holders, 0, 0 }
