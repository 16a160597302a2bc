-- Claims a role (ADR-0004: SET NX EX; who finds its own value there adopts it), or a place in its queue.
--
-- KEYS  1 leader, STRING  2 record of the claim  3 fence  4 queue  5 when its waiters' time is up
-- ARGV  1 claim  2 kind:name  3 session  4 host  5 name  6 ttl, ms  7 floor of tokens
--       8 what records start with  9 channel of the agent  10 1 to queue if taken  11 most waiters
-- Returns {'held', token} | {'waiting', position} | {'contended', ms until free or -1, nil, holder or nil}
-- | {'gone', reason} | {'quarantined', ms}. Writes nothing if contended.

local main, key, ttl = KEYS[1], KEYS[2], tonumber(ARGV[6])

local is_known = redis.call('EXISTS', main, key, KEYS[4]) > 0
judge(is_known and 'GET' or 'INCR')
is_known = is_known or grants_in
if is_known then
-- PRELUDE

local claim = claim_arguments()
local q = queue_of(main, KEYS[4], KEYS[5], KEYS[3], claim.records, claim.floor)

local record = read_record(key)
if is_of_another(record, claim.resource) then
  return { 'gone', 'conflict' }
end
local open = look_leader(q)
if record and record.place then
  -- Perhaps it has been granted just now.
  record = read_record(key)
end
local holder = redis.call('GET', main)
if record then
  if holder == claim.id and record.token then
    if beat_record(record, claim.ttl) then
      redis.call('PEXPIREAT', main, from_now(claim.ttl))
    end
    return { 'held', record.token }
  end
  local answer = answer_again(q, record, claim, 'conflict')
  if answer then
    return answer
  end
end

if grants_in or open or holder and holder ~= claim.id then
  local known = holder and read_record(claim.records .. holder)
  if has_place(q, claim) then
    if holder and not known then
      note_polled(q)
    end
    return join_queue(q, key, record, claim, 0)
  end
  if grants_in then
    return { 'quarantined', grants_in }
  end
  return { 'contended', open and LEFT_OPEN or redis.call('PTTL', main), false, holder and entry(holder, known) }
end
end

local token = next_token(KEYS[3], ARGV[7])
redis.call('SET', main, ARGV[1], 'PXAT', now_ms + ttl)
if is_known then
  redis.call('DEL', key)
end
redis.call('HSET', key, 'r', ARGV[2], 'session', ARGV[3], 'host', ARGV[4], 'name', ARGV[5], 'ttl', ARGV[6],
  'since', now_us, 'granted', now_us, 'token', token, 'agent', ARGV[9])
redis.call('PEXPIREAT', key, now_ms + ttl + KEEP)
return { 'held', token }
