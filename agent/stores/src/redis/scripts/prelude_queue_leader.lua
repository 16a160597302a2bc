-- Shared by what concerns leaders.

-- Grants a free role to whoever waits first.
local function look_leader(q)
  if is_empty(q) then
    return
  end
  purge_queue(q)
  if is_taken(q) then
    return
  end
  local place, record = first_waiter(q)
  if place then
    local _, ttl = grant_place(q, place, record)
    redis.call('SET', q.main, place:sub(CLAIM_AT), 'PXAT', from_now(ttl))
  end
end
