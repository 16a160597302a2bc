-- Says of claims of exclusive resources whether each is the holder still. Writes nothing.
--
-- KEYS  for each claim: 1 the resource's main key  2 record of the claim  3 for a master the key of its
--       claim, else 1 again
-- ARGV  for each claim: 1 kind  2 claim
-- Returns 1 or 0 for each.

local answers = {}
for i = 1, #ARGV / 2 do
  local main, record, claim = KEYS[3 * i - 2], KEYS[3 * i - 1], KEYS[3 * i]
  local kind, id = ARGV[2 * i - 1], ARGV[2 * i]
  local holds
  if kind == 'lease' then
    holds = redis.call('HGET', main, 'owner') == id
  elseif kind == 'master' then
    local session = redis.call('HGET', record, 'session')
    holds = session and redis.call('GET', main) == session and redis.call('GET', claim) == id
  else
    holds = redis.call('GET', main) == id
  end
  answers[i] = holds and 1 or 0
end
return answers
