-- Claims to be a project's master (SPEC-032 5.2 and 5.2.1, in one step: SET NX EX, and for a higher
-- priority a compare-and-swap that tells the incumbent).
--
-- KEYS  1 master, STRING  2 record of the claim  3 fence  4 claim of the master, STRING
--       5 hash of the session
-- ARGV  1 claim  2 kind:name  3 session  4 host  5 name  6 ttl, ms  7 floor of tokens
--       8 what records start with  9 project  10 priority  11 what hashes of sessions start with
--       12 what channels of sessions start with  13 channel of the project  14 channel of losses
--       15 preferred surface  16 its priority
-- Returns {'held', token} | {'contended', ms until free or -1, nil, holder} | {'gone', reason}.
-- Writes nothing if contended.

local main, key, fence, claim_key, own = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local ttl, priority = tonumber(ARGV[6]), tonumber(ARGV[10])

local token
local is_known = redis.call('EXISTS', main, key, claim_key) > 0
if is_known then
-- PRELUDE

local claim = claim_arguments()
local project, sessions = ARGV[9], ARGV[11]
local session_channels, channel, lost = ARGV[12], ARGV[13], ARGV[14]
local preferred, preference = ARGV[15], tonumber(ARGV[16])

-- What a session of another program counts for.
local function priority_of(session)
  local f = redis.call('HMGET', sessions .. session, 'priority', 'agent_surface')
  return tonumber(f[1]) or (f[2] == preferred and preference or 0)
end

local record = read_record(key)
if is_of_another(record, claim.resource) then
  return { 'gone', 'conflict' }
end
local master = read_master(main, claim_key, claim.records)
if record then
  if master.claim == claim.id and record.token then
    if beat_record(record, ttl) then
      redis.call('PEXPIREAT', main, from_now(ttl))
      keep_record(claim_key, ttl)
    end
    return { 'held', record.token }
  end
  local reason = why_gone(record, 'preempted')
  if reason ~= 'expired' then
    return { 'gone', reason }
  end
end

local left = master.session and redis.call('PTTL', main)
-- Who died between the SETNX and the EXPIRE of the seed left a key for ever.
if left == -1 and not master.claim and redis.call('EXISTS', sessions .. master.session) == 0 then
  master.session = false
end
local own_key = master.session == claim.session and not master.claim
if master.session and not own_key then
  local held = master.record and master.record.priority
  if master.session == claim.session or priority <= (held or priority_of(master.session)) then
    return { 'contended', left, false, master_entry(master, sessions) }
  end
end

token = next_token(fence, claim.floor)
if master.session and not own_key then
  if master.claim then
    end_record(master.record.key, master.record, 'preempted')
    redis.call('PUBLISH', lost, master.claim)
  end
  note_role(sessions .. master.session, false)
  tell_preempted(session_channels .. master.session, project, token, claim)
end
clear_master(claim_key, master, project, channel)
redis.call('DEL', key)
end

token = token or next_token(fence, ARGV[7])
redis.call('SET', main, ARGV[3], 'PXAT', now_ms + ttl)
redis.call('SET', claim_key, ARGV[1], 'PXAT', now_ms + ttl + KEEP)
redis.call('HSET', key, 'r', ARGV[2], 'session', ARGV[3], 'host', ARGV[4], 'name', ARGV[5], 'ttl', ARGV[6],
  'since', now_us, 'granted', now_us, 'token', token, 'priority', priority)
redis.call('PEXPIREAT', key, now_ms + ttl + KEEP)
if redis.call('EXISTS', own) == 1 then
  redis.call('HSET', own, 'is_master', '1', 'priority', priority)
end
return { 'held', token }
