-- Takes the role of master from a session, and tells the project.
--
-- KEYS  1 master, STRING  2 claim of the master, STRING
-- ARGV  1 only the grant with this token, or ''  2 what records start with  3 channel of losses
--       4 project  5 what hashes of sessions start with  6 channel of the project
-- Returns how many grants were taken away.

local main, claim_key = KEYS[1], KEYS[2]
local records, lost, project, sessions, channel = ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]
local master = read_master(main, claim_key, records)
if not master.session then
  return 0
end
local token = master.record and master.record.token or 0
if ARGV[1] ~= '' and tonumber(ARGV[1]) ~= token then
  return 0
end
local holder = master_entry(master, sessions)
redis.call('DEL', main)
note_role(sessions .. master.session, false)
if master.claim then
  redis.call('DEL', claim_key)
  end_record(master.record.key, master.record, 'revoked')
  redis.call('PUBLISH', lost, master.claim)
end
tell_master_released(channel, project, master.session, holder[4], holder[3])
return 1
