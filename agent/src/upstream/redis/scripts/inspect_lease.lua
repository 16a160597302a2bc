-- Says who holds a lease, or held it until its grace began. Writes nothing.
--
-- KEYS  1 lease, HASH
-- Returns {nil, holders, waiters, sessions}.

local lease = read_lease(KEYS[1])
local holders = {}
if lease then
  holders[1] = lease_entry(lease)
end
return { false, holders, {}, {} }
