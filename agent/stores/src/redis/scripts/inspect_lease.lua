-- Says who holds a lease, or held it until its grace began, and who waits for it. Writes nothing.
--
-- KEYS  1 lease, HASH  2 queue  3 when its waiters' time is up
-- ARGV  1 what records start with  2 how many waiters to name
-- Returns {nil, holders, waiters, sessions, nil, ms until its time, or its grace, is up or -1, how many
-- holders, waiters and sessions there are, {ttl, grace, and for how long nobody has renewed it, all in ms}}.

local lease = read_lease(KEYS[1])
local holders, left, times = {}, -1, {}
if lease then
  holders[1] = lease_entry(lease)
  holders[1][7] = unbeaten(lease)
  times = { lease.ttl, lease.grace, unbeaten(lease) }
  left = lease.in_grace and lease.left or lease.left - lease.grace
end
local waiters, waiting = waiters_of(KEYS[2], KEYS[3], ARGV[1], tonumber(ARGV[2]))
return { false, holders, waiters, {}, false, left, #holders, waiting, 0, times }
