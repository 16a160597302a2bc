-- Releases a lease, also in its grace, and leaves a mark that refuses a late copy of its claim.
--
-- KEYS  1 lease, HASH  2 record of the claim  3 names of leases, SET
--       4 version of the routing table, also its channel
-- ARGV  1 claim  2 kind:name  3 lease
-- Returns 1 if it was held, else 0.

local main, key, id = KEYS[1], KEYS[2], ARGV[1]
local record = read_record(key)
if is_of_another(record, ARGV[2]) then
  return 0
end
local held = redis.call('HGET', main, 'owner') == id
if held then
  redis.call('DEL', main)
  redis.call('SREM', KEYS[3], ARGV[3])
  next_version(KEYS[4])
end
end_record(key, record, 'released')
return held and 1 or 0
