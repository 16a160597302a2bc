-- Looks after semaphores: purges who ran out, grants who is first, keeps keys from expiring under their
-- users, and removes what nobody uses. Writes nothing where nothing of that is due.
--
-- KEYS  for each semaphore: 1 main  2 ttl  3 waiting  4 waiting_heartbeat  5 max  6 fence
-- ARGV  1 floor of tokens; for each semaphore: 1 what records start with
--       2 what notifications start with  3 1 if the caller shares it
-- Returns for each: how many hold, how many wait, ms until the first of them runs out or -1, 1 if one of
-- them is of another program. Of one that has a key of another type nobody holds or waits.

-- Members that are looked at, whether they are of another program: the first that wait, and the holders
-- with the most time left, as those programs ask for more of it.
local LOOKED_AT = 16

-- Clients of the package that purge the dead leave them in `ttl`.
local function forget_strays(s, holders)
  local count = redis.call('ZCARD', s.ttl)
  if count <= holders then
    return
  end
  -- Another part of a large set each time.
  local first = count > PURGE_MAX and math.floor(now_s) * PURGE_MAX % count or 0
  for _, member in ipairs(redis.call('ZRANGE', s.ttl, first, first + PURGE_MAX - 1)) do
    if not redis.call('ZSCORE', s.main, member) then
      redis.call('ZREM', s.ttl, member)
    end
  end
end

-- Notes whose the members are.
local function sort_members(s, members)
  local records = {}
  for _, member in ipairs(members) do
    local hold = hold_of(member)
    if hold then
      records[#records + 1] = s.records .. hold
    end
  end
  local ours = #records > 0 and redis.call('EXISTS', unpack(records)) or 0
  s.foreign = s.foreign or ours < #members
  -- Whoever looks: what a Tenure client needs is kept for ever.
  s.shared = s.shared or ours > 0
end

-- How a semaphore was left, whose keys and arguments begin after these.
local function look_after(k, a)
  local s = {
    main = KEYS[k + 1], ttl = KEYS[k + 2], waiting = KEYS[k + 3], hb = KEYS[k + 4], max = KEYS[k + 5],
    fence = KEYS[k + 6], floor = tonumber(ARGV[1]), records = ARGV[a + 1], notifications = ARGV[a + 2],
    shared = ARGV[a + 3] == '1',
  }
  purge(s)
  if redis.call('ZCARD', s.waiting) > 0 then
    grant_heads(s, limit_of(s))
  end
  local holders, waiting = redis.call('ZCARD', s.main), redis.call('ZCARD', s.waiting)
  local soonest = -1
  if holders + waiting == 0 then
    drop_unused(s)
  else
    forget_strays(s, holders)
    sort_members(s, redis.call('ZRANGE', s.main, -LOOKED_AT, -1))
    sort_members(s, redis.call('ZRANGE', s.waiting, 0, LOOKED_AT - 1))
    keep_keys(s, { 'main', 'ttl', 'waiting', 'hb', 'max' })
    for _, set in ipairs({ s.main, s.ttl, s.hb }) do
      local first = tonumber(redis.call('ZRANGE', set, 0, 0, 'WITHSCORES')[2])
      if first then
        local left = math.max(0, math.ceil((first - now_s) * 1000))
        soonest = soonest < 0 and left or math.min(soonest, left)
      end
    end
  end
  return holders, waiting, soonest, s.foreign and 1 or 0
end

local answers = {}
for i = 1, (last - 1) / 3 do
  local ok, holders, waiting, soonest, foreign = pcall(look_after, 6 * i - 6, 3 * i - 2)
  if not ok then
    -- A key of another program in the place of one of these takes nothing from the other semaphores; any other
    -- error does.
    local text = type(holders) == 'table' and holders.err or holders
    if not string.find(tostring(text), 'WRONGTYPE', 1, true) then
      error(holders, 0)
    end
    holders, waiting, soonest, foreign = 0, 0, -1, 0
  end
  local n = #answers
  answers[n + 1], answers[n + 2], answers[n + 3], answers[n + 4] = holders, waiting, soonest, foreign
end
return answers
