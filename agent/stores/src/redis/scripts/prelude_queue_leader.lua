-- Shared by what concerns leaders.

-- Grants a free role to whoever waits first. Whether it is left open to others instead.
local function look_leader(q)
  if is_empty(q) then
    return
  end
  purge_queue(q)
  if grants_in then
    return
  end
  if is_taken(q) then
    return
  end
  local place, record = first_waiter(q)
  if place and is_left_open(q) then
    return true
  end
  if place then
    local token, ttl = grant_place(q, place, record)
    local claim = place:sub(CLAIM_AT)
    redis.call('SET', q.main, claim, 'PXAT', from_now(ttl))
    tell_granted(record, claim, token, ttl)
  end
end
