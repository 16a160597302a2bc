-- Says of claims whether each is the holder, or a holder, still. Writes nothing.
--
-- KEYS  for each claim: 1 the resource's main key  2 record of the claim  3 for a master the key of its
--       claim, else 1 again
-- ARGV  for each claim: 1 kind  2 claim, of a semaphore as its sets have it
-- Returns for each 1 or 0, or 2 if it is but the keys of its semaphore expire before long.

-- Other programs may be content with less than this, ms; what they do is heard of long before.
local SOON = 12 * 3600 * 1000

local lefts = {}
local function expires_soon(main)
  local left = lefts[main]
  if not left then
    left = redis.call('PTTL', main)
    lefts[main] = left
  end
  return left >= 0 and left < SOON
end

local answers = {}
for i = 1, #ARGV / 2 do
  local main, record, claim = KEYS[3 * i - 2], KEYS[3 * i - 1], KEYS[3 * i]
  local kind, id = ARGV[2 * i - 1], ARGV[2 * i]
  local answer = 0
  if kind == 'semaphore' then
    if (tonumber(redis.call('ZSCORE', main, id)) or 0) > now_us / 1000000 then
      answer = expires_soon(main) and 2 or 1
    end
  elseif kind == 'lease' then
    answer = redis.call('HGET', main, 'owner') == id and 1 or 0
  elseif kind == 'master' then
    local session = redis.call('HGET', record, 'session')
    local holds = session and redis.call('GET', main) == session and redis.call('GET', claim) == id
    answer = holds and 1 or 0
  else
    answer = redis.call('GET', main) == id and 1 or 0
  end
  answers[i] = answer
end
return answers
