-- Takes permits from their holders, and grants who is first. One call looks at so many of them, those who run
-- out first before the others: whoever renews meanwhile comes later once more.
--
-- KEYS  1 main  2 fence  3 ttl  4 waiting  5 waiting_heartbeat  6 max
-- ARGV  1 only the grant with this token, or ''  2 what records start with  3 floor of tokens
--       4 what notifications start with  5 words for who had it, or ''
--       6 greatest token that is taken away, or '' at first: what is granted after the first call stays
--       7 the time to begin at, as `main` has it  8 how many of that time to leave out
-- Returns how many grants were taken away, and if there may be more, ARGV 6 to 8 of the next call.

local PAGE_MAX = 50

local only = tonumber(ARGV[1])
local s = {
  main = KEYS[1], fence = KEYS[2], ttl = KEYS[3], waiting = KEYS[4], hb = KEYS[5], max = KEYS[6],
  records = ARGV[2], notifications = ARGV[4], floor = tonumber(ARGV[3]), shared = true,
}
purge(s)
local newest = tonumber(ARGV[6]) or math.max(now_us, tonumber(redis.call('GET', s.fence)) or 0)
local at, kept, revoked = ARGV[7], tonumber(ARGV[8]), 0
local page = redis.call('ZRANGEBYSCORE', s.main, at, '+inf', 'WITHSCORES', 'LIMIT', kept, PAGE_MAX)
for i = 1, #page, 2 do
  local member = page[i]
  if page[i + 1] ~= at then
    at, kept = page[i + 1], 0
  end
  local record = record_of(s, member)
  local token = record and record.token or 0
  if token <= newest and (not only or only == token) then
    redis.call('ZREM', s.main, member)
    redis.call('ZREM', s.ttl, member)
    redis.call('DEL', s.notifications .. member)
    if record then
      end_record(record.key, record, 'revoked', ARGV[5])
      tell_lost(record, hold_of(member))
    end
    revoked = revoked + 1
  else
    kept = kept + 1
  end
end
if revoked > 0 then
  grant_heads(s, limit_of(s))
  drop_unused(s)
end
if #page < 2 * PAGE_MAX or (only and revoked > 0) then
  return { revoked }
end
return { revoked, whole(newest), at, whole(kept) }
