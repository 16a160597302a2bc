-- Reads a page of the routing table, or one line of it. Writes only where a lease expired, or its grace
-- began, and nobody has noted that yet.
--
-- KEYS  1 names of leases, SET  2 version of the routing table, also its channel
-- ARGV  1 what leases start with  2 cursor  3 how many  4 only this lease, if given
-- Returns {version, next cursor or '0', and for each line: name, host, holder, address, proxy_id,
-- partition, status, token, version}.

local leases, routes = KEYS[1], KEYS[2]
local cursor, names = '0', { ARGV[4] }
if not ARGV[4] then
  local page = redis.call('SSCAN', leases, ARGV[2], 'COUNT', ARGV[3])
  cursor, names = page[1], page[2]
end

local lines = {}
for _, name in ipairs(names) do
  local main = ARGV[1] .. name
  local ok, lease = pcall(read_lease, main)
  if not ok then
    -- A key of another program in the place of a lease has no line, and takes none from the others.
    local text = type(lease) == 'table' and lease.err or lease
    if not string.find(tostring(text), 'WRONGTYPE', 1, true) then
      error(lease, 0)
    end
  elseif lease then
    if lease.in_grace and lease.status ~= EXPIRING then
      redis.call('HSET', main, 'status', EXPIRING, 'version', next_version(routes))
    end
    local f = redis.call('HMGET', main, 'address', 'proxy_id', 'partition', 'status', 'version')
    local line = { name, lease.host or 'unknown', lease.name or lease.owner, f[1] or '', f[2] or '',
      tonumber(f[3]) or 0, f[4] or 'active', lease.token, tonumber(f[5]) or 0 }
    for i = 1, #line do
      lines[#lines + 1] = line[i]
    end
  elseif redis.call('SREM', leases, name) == 1 then
    next_version(routes)
  end
end

local answer = { tonumber(redis.call('GET', routes)) or 0, cursor }
for i = 1, #lines do
  answer[i + 2] = lines[i]
end
return answer
