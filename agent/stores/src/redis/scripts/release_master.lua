-- Releases a project's master, tells the project, and leaves a mark that refuses a late copy of the
-- claim (SPEC-032 5.4, but only if the value is the caller's).
--
-- KEYS  1 master, STRING  2 record of the claim  3 claim of the master, STRING
-- ARGV  1 claim  2 kind:name  3 project  4 what hashes of sessions start with  5 channel of the project
-- Returns 1 if it was held, else 0.

local main, key, claim_key = KEYS[1], KEYS[2], KEYS[3]
local id, project, sessions, channel = ARGV[1], ARGV[3], ARGV[4], ARGV[5]

local session = redis.call('GET', main)
local is_last = redis.call('GET', claim_key) == id
local known = redis.call('HMGET', key, 'r', 'gone', 'session', 'name', 'host')
local is_master = is_last and known[1] == ARGV[2] and not known[2] and session and known[3] == session
if is_master and known[4] and known[5] then
  redis.call('DEL', main, claim_key, key)
  if redis.call('EXISTS', sessions .. session) == 1 then
    redis.call('HSET', sessions .. session, 'is_master', '0')
  end
  redis.call('PUBLISH', channel, '{"type":"master_released","project":' .. cjson.encode(project)
    .. ',"session":' .. cjson.encode(session) .. ',"name":' .. cjson.encode(known[4])
    .. ',"host":' .. cjson.encode(known[5]) .. '}')
  redis.call('HSET', key, 'gone', 'released')
  redis.call('PEXPIREAT', key, now_ms + KEEP)
  return 1
end
-- PRELUDE

local record = read_record(key)
if is_of_another(record, ARGV[2]) then
  return 0
end
local is_last = redis.call('GET', claim_key) == id
local session = redis.call('GET', main)
local held = is_last and record and not record.gone and session == record.session
if held then
  redis.call('DEL', main)
  note_role(sessions .. session, false)
end
if is_last then
  redis.call('DEL', claim_key)
  if record and record.session and (held or not session) then
    tell_master_released(channel, project, record.session, record.name, record.host)
  end
end
end_record(key, record, 'released')
return held and 1 or 0
