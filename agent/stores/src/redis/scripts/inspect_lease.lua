-- Says who holds a lease, or held it until its grace began. Writes nothing.
--
-- KEYS  1 lease, HASH
-- Returns {nil, holders, waiters, sessions, nil, ms until its time, or its grace, is up or -1, how many
-- holders, waiters and sessions there are}.

local lease = read_lease(KEYS[1])
local holders, left = {}, -1
if lease then
  holders[1] = lease_entry(lease)
  left = lease.in_grace and lease.left or lease.left - lease.grace
end
return { false, holders, {}, {}, false, left, #holders, 0, 0 }
