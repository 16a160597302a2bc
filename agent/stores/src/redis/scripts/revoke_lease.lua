-- Takes a lease from its holder, and from its former holder the grace, and grants whoever waits first.
--
-- KEYS  1 lease, HASH  2 names of leases, SET  3 version of the routing table, also its channel  4 fence
--       5 queue  6 when its waiters' time is up  7 its waiters by session
-- ARGV  1 only the grant with this token, or ''  2 what records start with  3 floor of tokens
--       4 lease  5 sets to sweep, ZSET  6 words for who had it, or ''
-- Returns how many grants were taken away.

local main, records = KEYS[1], ARGV[2]
local lease = read_lease(main)
if not lease or (ARGV[1] ~= '' and tonumber(ARGV[1]) ~= lease.token) then
  return 0
end
redis.call('DEL', main)
redis.call('SREM', KEYS[2], ARGV[4])
next_version(KEYS[3])
local record = read_record(records .. lease.owner)
if record then
  end_record(record.key, record, 'revoked', ARGV[6])
  tell_lost(record, lease.owner)
end
local q = queue_of(main, KEYS[5], KEYS[6], KEYS[4], records, tonumber(ARGV[3]))
q.sessions, q.leases, q.routes, q.name = KEYS[7], KEYS[2], KEYS[3], ARGV[4]
q.sets = ARGV[5]
look_lease(q)
return 1
