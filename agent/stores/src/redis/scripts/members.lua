-- Says who is a project's master, and which sessions it has, page by page. Writes only where somebody died, and notes a
-- master of another program: takes the dead out, and tells of them, once.
--
-- KEYS  1 master, STRING  2 claim of the master, STRING  3 sessions of the project, SET
-- ARGV  1 what records start with  2 project  3 what hashes of sessions start with  4 channel of the project
--       5 cursor, or nothing if only the master is asked for  6 how many sessions are looked at
-- Returns {master's session, its claim, next cursor or '0', and for each session: session, name, surface, host,
-- registered at, ms until it ends or -1}. No text is longer than TEXT_MAX, nor all together than ALL_MAX, whatever
-- was written there: sessions beyond it are left out, and so are keys that are no hashes.

local TEXT_MAX, ALL_MAX = 16384, 8388608

local set, project, sessions, channel = KEYS[3], ARGV[2], ARGV[3], ARGV[4]
local master = read_master(KEYS[1], KEYS[2], ARGV[1])
clear_master(KEYS[2], master, project, channel)
note_master(KEYS[1], KEYS[2], master, sessions, set)
local answer = { master.session, master.claim or false, '0' }
if ARGV[5] == '' then
  return answer
end
local page = redis.call('SSCAN', set, ARGV[5], 'COUNT', ARGV[6])
answer[3] = page[1]
local size = 0
for _, session in ipairs(page[2]) do
  local f = redis.pcall('HMGET', sessions .. session, 'project_id', 'agent_identity', 'agent_surface', 'machine_id',
    'registered_at')
  -- One that died here may have come back in another project.
  if f[1] == project then
    local texts = { session, f[2] or session, f[3] or 'unknown', f[4] or 'unknown', f[5] or '' }
    local own = 0
    for i, text in ipairs(texts) do
      texts[i] = text:sub(1, TEXT_MAX)
      own = own + #texts[i]
    end
    if size + own <= ALL_MAX then
      size = size + own
      for _, text in ipairs(texts) do
        answer[#answer + 1] = text
      end
      answer[#answer + 1] = redis.call('PTTL', sessions .. session)
    end
  elseif not f.err then
    reap(set, session, channel)
  end
end
return answer
