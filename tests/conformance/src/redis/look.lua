-- Beside the beats of `renew`: who waits for an exclusive resource is looked after.

-- When something will have to be done for those who wait, ms from now, or -1.
local function next_look(q, kind)
  local left = is_taken(q) and call('PTTL', q.main) or -1
  local lease = left > 0 and kind == 'lease' and read_lease(q.main)
  if lease and not lease.in_grace then
    left = left - lease.grace
  end
  local first = call('ZRANGE', q.ends, 0, 0, 'WITHSCORES')[2]
  local ends = first and math.max(0, tonumber(first) - now_ms) or -1
  if left < 0 or ends < 0 then
    return math.max(-1, left, ends)
  end
  return math.min(left, ends)
end

-- ms until the first time is up or -1, and twice the number of those who wait, and one more if it is taken.
function beat.look(tenant, kind, name)
  local q = queue(tenant, kind, name)
  return 'look', next_look(q, kind), call('ZCARD', q.queue) * 2 + (is_taken(q) and 1 or 0)
end

