-- Takes the role of master from a session, and grants whoever waits first, or else tells the project.
--
-- KEYS  1 master, STRING  2 claim of the master, STRING  3 fence  4 queue  5 when its waiters' time is up
-- ARGV  1 only the grant with this token, or ''  2 what records start with  3 floor of tokens  4 project
--       5 what hashes of sessions start with  6 what channels of sessions start with
--       7 channel of the project  8 preferred surface  9 its priority
--       10 words for who had it, or ''
-- Returns how many grants were taken away.

local main, claim_key, records = KEYS[1], KEYS[2], ARGV[2]
local q = queue_of(main, KEYS[4], KEYS[5], KEYS[3], records, tonumber(ARGV[3]))
of_project(q, claim_key, 4)
local master = read_master(main, claim_key, records)
if not master.session then
  return 0
end
local token = master.record and master.record.token or 0
if ARGV[1] ~= '' and tonumber(ARGV[1]) ~= token then
  return 0
end
local holder = master_entry(master, q.hashes)
redis.call('DEL', main)
note_role(q.hashes .. master.session, false)
redis.call('DEL', claim_key)
if master.claim then
  end_record(master.record.key, master.record, 'revoked', ARGV[10])
  tell_lost(master.record, master.claim)
end
if not look_master(q) then
  tell_master_released(q.channel, q.project, master.session, holder[4], holder[3])
end
return 1
