-- Says who is a project's master, and which sessions it has. Writes only where somebody died, and notes a master of
-- another program: takes the dead out, and tells of them, once.
--
-- KEYS  1 master, STRING  2 claim of the master, STRING  3 sessions of the project, SET  4 queue
--       5 when its waiters' time is up
-- ARGV  1 what records start with  2 project  3 what hashes of sessions start with
--       4 channel of the project  5 how many sessions to name  6 how many waiters to name
-- Returns {nil, holders, waiters, sessions, nil, ms until the master's time is up or -1, how many holders,
-- waiters and sessions there are}.

local main, claim_key, set = KEYS[1], KEYS[2], KEYS[3]
local project, sessions, channel = ARGV[2], ARGV[3], ARGV[4]
local master = read_master(main, claim_key, ARGV[1])
clear_master(claim_key, master, project, channel)
note_master(main, claim_key, master, sessions, set)
local holders = {}
if master.session then
  holders[1] = master.claim and holder_entry(master.claim, master.record) or master_entry(master, sessions)
end

-- Of a project with more sessions than are named some are, and no more are looked at; mostly the same
-- ones. Most questions are about the master alone, and come from every agent at every change.
local named, members = tonumber(ARGV[5]), redis.call('SCARD', set)
local looked_at = {}
if named > 0 and members > named then
  looked_at = redis.call('SSCAN', set, 0, 'COUNT', named)[2]
elseif named > 0 then
  looked_at = redis.call('SMEMBERS', set)
end
local present = {}
for _, session in ipairs(looked_at) do
  local f = redis.pcall('HMGET', sessions .. session, 'project_id', 'agent_identity', 'registered_at')
  -- One that died here may have come back in another project. A key that is no hash is of another program.
  if f[1] == project then
    present[#present + 1] = { f[3] or '', session, f[2] or session }
  elseif f.err and not string.find(f.err, 'WRONGTYPE', 1, true) then
    error(f, 0)
  elseif not f.err then
    reap(set, session, channel)
    members = members - 1
  end
end
-- In the order in which they came.
table.sort(present, function(a, b)
  if a[1] ~= b[1] then
    return a[1] < b[1]
  end
  return a[2] < b[2]
end)
local names = {}
for i = 1, math.min(#present, named) do
  names[i] = present[i][3]
end
local waiters, waiting = waiters_of(KEYS[4], KEYS[5], ARGV[1], tonumber(ARGV[6]))
return { false, holders, waiters, names, false, redis.call('PTTL', main), #holders, waiting, members }
