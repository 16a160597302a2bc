-- Claims to be a project's master (SPEC-032 5.2 and 5.2.1, in one step: SET NX EX, and for a higher
-- priority a compare-and-swap that tells the incumbent), or a place in its queue.
--
-- KEYS  1 master, STRING  2 record of the claim  3 fence  4 claim of the master, STRING
--       5 queue  6 when its waiters' time is up
-- ARGV  1 claim  2 kind:name  3 session  4 host  5 name  6 ttl, ms  7 floor of tokens
--       8 what records start with  9 channel of the agent  10 1 to queue if taken  11 most waiters
--       12 project  13 what hashes of sessions start with  14 what channels of sessions start with
--       15 channel of the project  16 preferred surface  17 its priority  18 priority
-- Returns {'held', token} | {'waiting', position} | {'contended', ms until free or -1, nil, holder or nil}
-- | {'gone', reason} | {'quarantined', ms}. Writes nothing if contended.

local main, key, claim_key, ttl = KEYS[1], KEYS[2], KEYS[4], tonumber(ARGV[6])

local is_free = redis.call('EXISTS', main, key, claim_key, KEYS[5]) == 0
judge(is_free and 'INCR' or 'GET')
if is_free and not grants_in then
  local token, own = next_token(KEYS[3], ARGV[7]), ARGV[13] .. ARGV[3]
  redis.call('SET', main, ARGV[3], 'PXAT', now_ms + ttl)
  redis.call('SET', claim_key, ARGV[1], 'PXAT', now_ms + ttl + KEEP)
  redis.call('HSET', key, 'r', ARGV[2], 'session', ARGV[3], 'host', ARGV[4], 'name', ARGV[5], 'ttl', ARGV[6],
    'since', now_us, 'granted', now_us, 'token', token, 'agent', ARGV[9], 'priority', ARGV[18])
  redis.call('PEXPIREAT', key, now_ms + ttl + KEEP)
  if redis.call('EXISTS', own) == 1 then
    redis.call('HSET', own, 'is_master', '1', 'priority', ARGV[18])
  end
  return { 'held', token }
end
-- PRELUDE

local claim = claim_arguments()
local q = queue_of(KEYS[1], KEYS[5], KEYS[6], KEYS[3], claim.records, claim.floor)
of_project(q, KEYS[4], 12)
claim.priority = tonumber(ARGV[18])

local record = read_record(key)
if is_of_another(record, claim.resource) then
  return { 'gone', 'conflict' }
end
look_master(q)
if record and record.place then
  -- Perhaps it has been granted just now.
  record = read_record(key)
end
if record then
  local held = read_master(q.main, q.claim_key, q.records)
  if held.claim == claim.id and record.token then
    if beat_record(record, claim.ttl) then
      redis.call('PEXPIREAT', q.main, from_now(claim.ttl))
      keep_record(q.claim_key, claim.ttl)
    end
    return { 'held', record.token }
  end
  local answer = answer_again(q, record, claim, 'preempted')
  if answer then
    return answer
  end
end

local master, makes_way = incumbent(q, claim.session, claim.priority)
if grants_in or not makes_way or outranked(q, claim.priority) then
  if has_place(q, claim) then
    if master.session and not master.claim then
      note_polled(q)
    end
    return join_queue(q, key, record, claim, claim.priority, 'priority', claim.priority)
  end
  if grants_in then
    return { 'quarantined', grants_in }
  end
  if not master.session then
    return { 'contended', LEFT_OPEN }
  end
  return { 'contended', master.left_ms, false, master_entry(master, q.hashes) }
end

local token = next_token(q.fence, claim.floor)
clear_master(q.claim_key, master, q.project, q.channel)
succeed(q, master, claim, token, claim.ttl)
write_record(key, record, claim, 'token', whole(token), 'granted', whole(now_us), 'priority', claim.priority)
keep_record(key, claim.ttl)
return { 'held', token }
