-- Claims a role (ADR-0004: SET NX EX; who finds its own value there adopts it).
--
-- KEYS  1 leader, STRING  2 record of the claim  3 fence
-- ARGV  1 claim  2 kind:name  3 session  4 host  5 name  6 ttl, ms  7 floor of tokens
--       8 what records start with
-- Returns {'held', token} | {'contended', ms until free or -1, nil, holder} | {'gone', reason}.
-- Writes nothing if contended.

local main, key, fence, ttl = KEYS[1], KEYS[2], KEYS[3], tonumber(ARGV[6])

local is_known = redis.call('EXISTS', main, key) > 0
if is_known then
-- PRELUDE

local claim = claim_arguments()

local holder = redis.call('GET', main)
local record = read_record(key)
if is_of_another(record, claim.resource) then
  return { 'gone', 'conflict' }
end
if record then
  if holder == claim.id and record.token then
    if beat_record(record, ttl) then
      redis.call('PEXPIREAT', main, from_now(ttl))
    end
    return { 'held', record.token }
  end
  local reason = why_gone(record, 'conflict')
  if reason ~= 'expired' then
    return { 'gone', reason }
  end
end

if holder and holder ~= claim.id then
  local known = read_record(claim.records .. holder)
  return { 'contended', redis.call('PTTL', main), false, entry(holder, known) }
end
end

local token = next_token(fence, ARGV[7])
redis.call('SET', main, ARGV[1], 'PXAT', now_ms + ttl)
if is_known then
  redis.call('DEL', key)
end
redis.call('HSET', key, 'r', ARGV[2], 'session', ARGV[3], 'host', ARGV[4], 'name', ARGV[5], 'ttl', ARGV[6],
  'since', now_us, 'granted', now_us, 'token', token)
redis.call('PEXPIREAT', key, now_ms + ttl + KEEP)
return { 'held', token }
