-- Takes a role from its holder, and grants whoever waits first.
--
-- KEYS  1 leader, STRING  2 fence  3 queue  4 when its waiters' time is up
-- ARGV  1 only the grant with this token, or ''  2 what records start with  3 floor of tokens
--       4 words for who had it, or ''
-- Returns how many grants were taken away.

local main, records = KEYS[1], ARGV[2]
local holder = redis.call('GET', main)
if not holder then
  return 0
end
local record = read_record(records .. holder)
local token = record and record.token or 0
if ARGV[1] ~= '' and tonumber(ARGV[1]) ~= token then
  return 0
end
redis.call('DEL', main)
if record then
  end_record(record.key, record, 'revoked', ARGV[4])
  tell_lost(record, holder)
end
look_leader(queue_of(main, KEYS[3], KEYS[4], KEYS[2], records, tonumber(ARGV[3])))
return 1
