-- Shared by what grants leases. A queue has further keys here: its waiters by session, `sessions`, whose
-- members are a session and its place, the names of leases, the version of the routing table and the sets to sweep.

-- Writes a lease of `by`, whose attributes are in `a`. It lives `ttl` ms, and then `grace` ms.
local function write_lease(q, by, token, ttl, grace, a)
  redis.call('DEL', q.main)
  redis.call('HSET', q.main, 'owner', by.id, 'session', by.session, 'token', whole(token),
    'address', a[1], 'proxy_id', a[2], 'partition', a[3], 'status', a[4],
    'holder_status', a[4], 'granted_at', whole(now_ms), 'renewed_at', whole(now_ms),
    'ttl_ms', by.ttl, 'grace_ms', grace, 'version', next_version(q.routes), 'host', by.host,
    'name', by.name)
  redis.call('PEXPIREAT', q.main, from_now(ttl + grace))
  redis.call('SADD', q.leases, q.name)
  have_swept(q.sets, q.leases)
end

-- The former holder of a lease in its grace has lost it.
local function end_former(q, lease)
  local former = q.records .. lease.owner
  end_record(former, read_record(former), 'expired')
end

-- Grants a free lease to whoever waits first, one in its grace to the first of its session. Until a beat
-- confirms that, it keeps no grace but what was left.
local function look_lease(q)
  if is_empty(q) then
    return
  end
  purge_queue(q)
  if grants_in then
    return
  end
  local lease = is_taken(q) and read_lease(q.main) or nil
  if lease and not lease.in_grace then
    return
  end
  local place, record = first_waiter(q, lease and lease.session)
  if not place then
    return
  end
  local a = redis.call('HMGET', record.key, 'address', 'proxy_id', 'partition', 'status', 'grace')
  local token, ttl = grant_place(q, place, record)
  local kept = 0
  if lease then
    end_former(q, lease)
    kept = math.max(0, lease.left - ttl)
  end
  record.id = place:sub(CLAIM_AT)
  write_lease(q, record, token, ttl, kept, a)
  redis.call('HSET', q.main, 'grace_wanted', a[5])
  keep_record(record.key, ttl + kept)
  tell_granted(record, record.id, token, ttl)
end
