-- Comes second in every script that grants: whether the store has all that its caller knows of, and whether it may
-- grant. The script that finds a loss marks it, before it decides anything, so that nothing is granted in between.
--
-- An epoch has an id, and a counter of its grants and calls of beats: the key of the epoch, a colon and the id. It
-- counts, and does not take the time: what newcomers write in a store that was set back would hide that at once. A
-- caller that knows the id, and that nothing is wrong, needs the counter alone; with the mark of a loss the counter
-- goes.
--
-- The key of the epoch is a HASH: `id`; `longest`, the longest ttl in use, ms, and `longest_at`, when it was asked for
-- last; and after a loss `was`, the ids that agents from before the loss know, `since`, when it was found,
-- and `until`, when grants begin again, 0 if an administrator ended the quarantine; in ms.
--
-- Last ARGV: 1 counter, or '' to read the whole epoch  2 its value that the caller knows
--       3 '@epoch', key, id or -, longest ttl that it knows of, ttl that it asks for, with spaces between
-- Returns {counter or -1, what the script returns}, and if the whole epoch was read also the id or nil, the longest
-- ttl in use, and ms until grants begin or 0. Without those ARGV what the script returns: neither counted nor judged.

local at = #ARGV
local has_epoch = at > 2 and ARGV[at]:sub(1, 7) == '@epoch '
-- The last one that is not about the epoch.
local last = has_epoch and at - 3 or at
local is_judged, is_counted, counted, counts_at, told = not has_epoch, false, -1, nil, nil

-- With 'INCR' it counts, too; with 'GET' it does not write, unless there is a loss.
local function judge(command)
  if is_judged then
    return
  end
  is_judged = true
  local counter, known = ARGV[at - 2], tonumber(ARGV[at - 1])
  if counter ~= '' then
    local n = redis.pcall(command, counter)
    if type(n) == 'table' then
      -- A user without the right, or a full server, whose holders beat all the same.
      return
    end
    n = tonumber(n) or 0
    if n > known or n == known and command == 'GET' then
      counted, counts_at, is_counted = n, counter, command == 'INCR'
      return
    end
  end
  local key, knows, longest_known, ttl = ARGV[at]:match('^@epoch (%S+) (%S+) (%d+) (%d+)$')
  local f = redis.pcall('HMGET', key, 'id', 'was', 'since', 'until', 'longest', 'longest_at')
  if f.err then
    return
  end
  local id, was, since, ends = f[1], f[2] or '', tonumber(f[3]) or 0, tonumber(f[4]) or 0
  local longest, longest_at = tonumber(f[5]) or 0, tonumber(f[6]) or 0
  longest_known, ttl = tonumber(longest_known), tonumber(ttl)
  local n = id and tonumber(redis.call('GET', key .. ':' .. id)) or 0
  if counter ~= '' or knows ~= '-' and (id ~= knows or n < known) then
    if counter ~= '' then
      -- It must not grow up to what some caller knows.
      redis.call('DEL', counter)
    end
    local is_found = id and id ~= knows and (' ' .. was .. ' '):find(' ' .. knows .. ' ', 1, true)
    if not is_found then
      was = knows
      if id and id ~= knows then
        -- A newcomer began it, or an older dump brought it back: its callers look, too.
        was = knows .. ' ' .. id
      end
      if id then
        redis.call('DEL', key .. ':' .. id)
      end
      id, n = redis.sha1hex(knows .. now_us):sub(1, 16), 0
      since, ends = now_ms, now_ms + longest_known
      if longest_known > longest then
        -- Agents that asked for nothing learn of it, should this mark be lost as well.
        longest, longest_at = longest_known, now_ms
      end
    elseif ends > 0 then
      -- Others have found the same: it may take longer than they know, but does not begin again.
      ends = math.max(ends, since + longest_known)
    end
    redis.pcall('HSET', key, 'id', id, 'was', was, 'since', since, 'until', ends, 'longest', longest, 'longest_at', longest_at)
  elseif not id and command == 'INCR' then
    id = redis.sha1hex(key .. now_us):sub(1, 16)
    redis.pcall('HSET', key, 'id', id)
  end
  if ends > now_ms then
    grants_in = ends - now_ms
  end
  if command == 'INCR' then
    if ttl > 0 and (ttl >= longest or now_ms > longest_at + longest) then
      longest, longest_at = ttl, now_ms
      redis.pcall('HSET', key, 'longest', longest, 'longest_at', longest_at)
    end
    n = tonumber(redis.pcall('INCR', key .. ':' .. id)) or n
  end
  counted, counts_at, is_counted = n, id and key .. ':' .. id, command == 'INCR'
  told = { id, now_ms <= longest_at + longest and longest or 0, grants_in or 0 }
end

-- SCRIPT

local reply = run()
if not has_epoch then
  return reply
end
if grants > 0 and counts_at and not is_counted then
  counted = tonumber(redis.pcall('INCR', counts_at)) or counted
end
if told then
  return { counted, reply, told[1], told[2], told[3] }
end
return { counted, reply }
