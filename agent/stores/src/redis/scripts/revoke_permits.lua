-- Takes permits from their holders, and grants who is first.
--
-- KEYS  1 main  2 fence  3 ttl  4 waiting  5 waiting_heartbeat  6 max
-- ARGV  1 only the grant with this token, or ''  2 what records start with  3 channel of losses
--       4 floor of tokens  5 what notifications start with
-- Returns how many grants were taken away.

local only, lost = tonumber(ARGV[1]), ARGV[3]
local s = {
  main = KEYS[1], fence = KEYS[2], ttl = KEYS[3], waiting = KEYS[4], hb = KEYS[5], max = KEYS[6],
  records = ARGV[2], notifications = ARGV[5], floor = tonumber(ARGV[4]), shared = true,
}
purge(s)
local revoked = 0
for _, member in ipairs(redis.call('ZRANGE', s.main, 0, -1)) do
  local record = record_of(s, member)
  local token = record and record.token or 0
  if not only or only == token then
    redis.call('ZREM', s.main, member)
    redis.call('ZREM', s.ttl, member)
    redis.call('DEL', s.notifications .. member)
    if record then
      end_record(record.key, record, 'revoked')
      redis.call('PUBLISH', lost, hold_of(member))
    end
    revoked = revoked + 1
  end
end
if revoked > 0 then
  grant_heads(s, limit_of(s))
  drop_unused(s)
end
return revoked
