-- Comes first in every script: constants, time and tokens. To make the functions of the prelude takes longer
-- than an uncontended claim or release, so those decide their case before the line PRELUDE.
--
-- Time is the server's alone; a client's clock never decides anything. All expiries of one call are
-- reckoned from the same instant, so that a record outlives what it is about by KEEP exactly.

-- How long a claim is remembered after its end, ms.
local KEEP = 60000
-- How long after a look for dead members of a set the next one is due, ms.
local SWEEP_EVERY = 30000
-- What the Python package says for no longest duration of a permit, s, and what EXPIRE it then sends.
local NO_TTL, FOREVER = 2147483637, 2147483647

local clock = redis.call('TIME')
local now_us = clock[1] * 1000000 + clock[2]
local now_ms = math.floor(now_us / 1000)

-- Lists a set that cannot expire for sweep.lua. Nothing else depends on the list: a user without a right to its key,
-- and a foreign value there, cost no claim and no announcement.
local function have_swept(sets, set)
  redis.pcall('ZADD', sets, 'NX', now_ms + SWEEP_EVERY, set)
end

-- Grants of this call, and for how long nothing may be granted, ms, if that is so: see epoch.lua.
local grants, grants_in = 0, nil

-- The next token: greater than every one before, whatever happened to the store or its clock.
local function next_token(fence, floor)
  grants = grants + 1
  local token = math.max(now_us, floor + 1)
  local last = tonumber(redis.call('SET', fence, token, 'GET')) or 0
  if last >= token then
    token = last + 1
    redis.call('SET', fence, token)
  end
  return token
end
