-- Claims a role (ADR-0004: SET NX EX; who finds its own value there adopts it).
--
-- KEYS  1 leader, STRING  2 record of the claim  3 fence
-- ARGV  1 claim  2 kind:name  3 session  4 host  5 name  6 ttl, ms  7 floor of tokens
--       8 what records start with
-- Returns {'held', token} | {'contended', ms until free or -1, nil, holder} | {'gone', reason}.
-- Writes nothing if contended.

local main, key, fence = KEYS[1], KEYS[2], KEYS[3]
local id, resource, ttl = ARGV[1], ARGV[2], tonumber(ARGV[6])

local holder = redis.call('GET', main)
local record = read_record(key)
if record then
  if record.r and record.r ~= resource then
    return { 'gone', 'conflict' }
  end
  if holder == id and record.token then
    if beat_record(record, ttl) then
      redis.call('PEXPIREAT', main, whole(now_ms + ttl))
    end
    return { 'held', record.token }
  end
  local reason = why_gone(record, 'conflict')
  if reason ~= 'expired' then
    return { 'gone', reason }
  end
end

if holder and holder ~= id then
  return { 'contended', redis.call('PTTL', main), false, entry(holder, read_record(ARGV[8] .. holder)) }
end
local token = next_token(fence, tonumber(ARGV[7]))
redis.call('SET', main, id, 'PXAT', whole(now_ms + ttl))
if record then
  redis.call('DEL', key)
end
redis.call('HSET', key, 'r', resource, 'session', ARGV[3], 'host', ARGV[4], 'name', ARGV[5],
  'ttl', ttl, 'since', whole(now_us), 'token', whole(token), 'granted', whole(now_us))
keep_record(key, ttl)
return { 'held', token }
