-- Says who holds permits and who waits, page by page. Writes nothing.
--
-- KEYS  1 main  2 ttl  3 waiting  4 waiting_heartbeat  5 max
-- ARGV  1 what records start with  2 where the page begins  3 how many of each
-- Returns {limit or nil, holders, waiters, sessions, where the next page begins or -1, nil, how many
-- holders, waiters and sessions there are}.

local s = {
  main = KEYS[1], ttl = KEYS[2], waiting = KEYS[3], hb = KEYS[4], max = KEYS[5], records = ARGV[1],
}
local first, count = tonumber(ARGV[2]), tonumber(ARGV[3])
local last = first + count - 1

local function entries(members, is_overdue, entry_of)
  local found = {}
  for _, member in ipairs(members) do
    if not is_overdue(member) then
      found[#found + 1] = entry_of(member, record_of(s, member))
    end
  end
  return found
end

local function runs_out(key)
  return function(member)
    local at = redis.call('ZSCORE', key, member)
    return at and tonumber(at) <= now_s
  end
end

local holders = redis.call('ZRANGE', s.main, first, last)
local waiters = redis.call('ZRANGE', s.waiting, first, last)
local more = #holders == count or #waiters == count
local limit = tonumber(redis.call('GET', s.max)) or false
-- Those whose time is up and whom nobody has purged yet do not count.
local function live(set, scores)
  return redis.call('ZCARD', set) - #redis.call('ZRANGEBYSCORE', scores, '-inf', string.format('%.17g', now_s))
end

return { limit, entries(holders, runs_out(s.main), holder_entry), entries(waiters, runs_out(s.hb), entry), {},
  more and last + 1 or -1, false, live(s.main, s.main), live(s.waiting, s.hb), 0 }
