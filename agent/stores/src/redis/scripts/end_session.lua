-- Ends a session, and tells its project (SPEC-032 5.4). What the session holds is released by itself.
--
-- KEYS  1 hash of the session  2 what says for a while that it has ended
-- ARGV  1 session  2 tenant  3 project  4 what the keys of projects' sessions start with
--       5 what they end with  6 what channels of projects start with
-- Returns 1 if it was there, else 0.

local key, session = KEYS[1], ARGV[1]
local f = redis.call('HMGET', key, 'tenant_id', 'project_id', 'name', 'host')
local project = (f[1] or ARGV[2]) .. ':' .. (f[2] or ARGV[3])
end_record(KEYS[2], nil, 'ended')
local there = redis.call('DEL', key)
local set = ARGV[4] .. project .. ARGV[5]
local listed = redis.call('SREM', set, session)
local name, host = take_name(set, session)
if there + listed > 0 then
  tell_session_ended(ARGV[6] .. project, session, f[3] or name, f[4] or host)
end
return there
