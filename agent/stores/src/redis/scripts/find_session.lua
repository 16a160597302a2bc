-- Says in which project a session is. Writes nothing.
--
-- KEYS  1 hash of the session
-- Returns {tenant, project}, or nothing if there is no such session.

local f = redis.call('HMGET', KEYS[1], 'tenant_id', 'project_id')
if not f[1] or not f[2] then
  return false
end
return f
