-- Takes a lease from its holder, and from its former holder the grace.
--
-- KEYS  1 lease, HASH  2 names of leases, SET  3 version of the routing table, also its channel
-- ARGV  1 only the grant with this token, or ''  2 what records start with  3 channel of losses  4 lease
-- Returns how many grants were taken away.

local main, records, lost = KEYS[1], ARGV[2], ARGV[3]
local lease = read_lease(main)
if not lease or (ARGV[1] ~= '' and tonumber(ARGV[1]) ~= lease.token) then
  return 0
end
redis.call('DEL', main)
redis.call('SREM', KEYS[2], ARGV[4])
next_version(KEYS[3])
local record = read_record(records .. lease.owner)
if record then
  end_record(record.key, record, 'revoked')
  redis.call('PUBLISH', lost, lease.owner)
end
return 1
