-- Finds a few of the keys that say that somebody holds a resource, waits for it, or is announced. Writes nothing.
--
-- ARGV  1 cursor  2 how many keys to look at  3 what keys of other tenants start with, and what each sort of key
--       starts with after that: 4 leaders  5 leases  6 masters  7 sessions of projects  8 holders of semaphores
--       9 waiters of semaphores  10 when their time is up  11 when that of other waiters is
-- Returns {next cursor or '0', and the keys}.

local TENANT = ARGV[3]

-- True if a sorted set has a member with a score above `floor`, or is none: whose it is, its readers say.
local function lasts(set, floor)
  local last = redis.pcall('ZREVRANGE', set, 0, 0, 'WITHSCORES')
  return last.err or (last[2] and tonumber(last[2]) > floor)
end

local function is_wanted(key, start)
  local function begins(prefix)
    return key:sub(start, start + #prefix - 1) == prefix
  end
  if begins(ARGV[4]) or begins(ARGV[5]) or begins(ARGV[6]) or begins(ARGV[7]) then
    return true
  end
  if begins(ARGV[8]) then
    return lasts(key, now_us / 1000000)
  end
  if begins(ARGV[9]) then
    return lasts(key:sub(1, start - 1) .. ARGV[10] .. key:sub(start + #ARGV[9]), now_us / 1000000)
  end
  return begins(ARGV[11]) and lasts(key, now_ms)
end

local page = redis.call('SCAN', ARGV[1], 'COUNT', ARGV[2])
local answer = { page[1] }
for _, key in ipairs(page[2]) do
  local start = 1
  if key:sub(1, #TENANT) == TENANT then
    local colon = key:find(':', #TENANT + 1, true)
    start = colon and colon + 1 or 1
  end
  if is_wanted(key, start) then
    answer[#answer + 1] = key
  end
end
return answer
