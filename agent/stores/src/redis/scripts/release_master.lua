-- Releases a project's master, or a place in its queue, grants whoever waits first, or else tells the project,
-- and leaves a mark that refuses a late copy of the claim (SPEC-032 5.4, but only if the value is the
-- caller's).
--
-- KEYS  1 master, STRING  2 record of the claim  3 claim of the master, STRING  4 fence
--       5 queue  6 when its waiters' time is up
-- ARGV  1 claim  2 kind:name  3 floor of tokens  4 what records start with  5 project
--       6 what hashes of sessions start with  7 what channels of sessions start with
--       8 channel of the project  9 preferred surface  10 its priority
-- Returns 1 if it held or waited, else 0.

local main, key, claim_key, id = KEYS[1], KEYS[2], KEYS[3], ARGV[1]
local project, sessions, channel = ARGV[5], ARGV[6], ARGV[8]

local session = redis.call('GET', main)
local is_last = redis.call('GET', claim_key) == id
local known = redis.call('HMGET', key, 'r', 'gone', 'session', 'name', 'host')
local is_master = is_last and known[1] == ARGV[2] and not known[2] and session and known[3] == session
if is_master and known[4] and known[5] and redis.call('EXISTS', KEYS[5]) == 0 then
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

local q = queue_of(main, KEYS[5], KEYS[6], KEYS[4], ARGV[4], tonumber(ARGV[3]))
of_project(q, claim_key, 5)
local record = read_record(key)
if is_of_another(record, ARGV[2]) then
  return 0
end
local held = is_last and record and not record.gone and session == record.session
if held then
  redis.call('DEL', main)
  note_role(q.hashes .. session, false)
end
if is_last then
  redis.call('DEL', claim_key)
end
purge_queue(q)
local waited = give_up(q, record)
end_record(key, record, 'released')
if not look_master(q) and is_last and record and record.session and (held or not session) then
  tell_master_released(q.channel, q.project, record.session, record.name, record.host)
end
return (held or waited) and 1 or 0
