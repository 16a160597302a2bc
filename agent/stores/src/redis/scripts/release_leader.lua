-- Releases a role, and leaves a mark that refuses a late copy of its claim.
--
-- KEYS  1 leader, STRING  2 record of the claim
-- ARGV  1 claim  2 kind:name
-- Returns 1 if it was held, else 0.

local main, key, id = KEYS[1], KEYS[2], ARGV[1]
local record = read_record(key)
if is_of_another(record, ARGV[2]) then
  return 0
end
local held = redis.call('GET', main) == id
if held then
  redis.call('DEL', main)
end
end_record(key, record, 'released')
return held and 1 or 0
