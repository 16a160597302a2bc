-- Shared by what concerns a project: its master, its sessions, and what they are told.

local function json(text)
  return text and cjson.encode(text) or 'null'
end

local function tell_master_released(channel, project, session, name, host)
  redis.call('PUBLISH', channel, '{"type":"master_released","project":' .. json(project)
    .. ',"session":' .. json(session) .. ',"name":' .. json(name) .. ',"host":' .. json(host) .. '}')
end

local function tell_session_ended(channel, session, name, host)
  redis.call('PUBLISH', channel, '{"type":"session_ended","session":' .. json(session)
    .. ',"name":' .. json(name) .. ',"host":' .. json(host) .. '}')
end

-- Numbers are written here: cjson would round a token to 14 digits.
local function tell_preempted(channel, project, token, by)
  redis.call('PUBLISH', channel, '{"type":"MasterPreempted","project":' .. json(project)
    .. ',"token":' .. whole(token) .. ',"by":{"session":' .. json(by.session)
    .. ',"name":' .. json(by.name) .. ',"host":' .. json(by.host) .. '}}')
end

-- What `note_master` wrote in the place of a claim, or nil.
local function noted_master(claim)
  if claim and claim:sub(1, 1) == '{' then
    local ok, noted = pcall(cjson.decode, claim)
    return ok and noted or nil
  end
end

-- The master of a project: its session, and if it is one of a Tenure agent its claim and the claim's
-- record. `left` is a claim that is no longer the master's, and its record; or a master without a claim, as noted.
local function read_master(main, claim_key, records)
  local master = { session = redis.call('GET', main) }
  local claim = redis.call('GET', claim_key)
  local noted = noted_master(claim)
  local record = noted or claim and read_record(records .. claim) or nil
  if claim and not noted and master.session and record and not record.gone
    and record.session == master.session then
    master.claim, master.record = claim, record
  elseif claim then
    master.left, master.left_record = claim, record
  end
  return master
end

-- HASH: the name and host of each announced session of a project, for when its own hash is gone.
local function names_of(set)
  return set .. ':names'
end

-- Notes a master of another program where a claim would be, with the name that its session has: when its time is up
-- both are gone, and its project is to be told. A store that refuses writes is read all the same.
local function note_master(main, claim_key, master, sessions, set)
  if not master.session or master.claim then
    return
  end
  local lasts, noted = math.max(0, redis.call('PTTL', main)) + KEEP, noted_master(master.left)
  if noted and noted.session == master.session then
    if redis.call('PTTL', claim_key) < lasts - KEEP / 2 then
      redis.pcall('PEXPIREAT', claim_key, from_now(lasts))
    end
    return
  end
  local f = redis.pcall('HMGET', sessions .. master.session, 'agent_identity', 'machine_id')
  local note = { session = master.session, name = f[1] or nil, host = f[2] or nil }
  redis.pcall('SET', claim_key, cjson.encode(note), 'PXAT', from_now(lasts))
  if note.name and note.host then
    redis.pcall('HSET', names_of(set), master.session, cjson.encode({ note.name, note.host }))
  end
end

-- A master that ended without a release is told of once, by whoever clears its claim away.
local function clear_master(claim_key, master, project, channel)
  if master.session or not master.left then
    return
  end
  redis.call('DEL', claim_key)
  local record = master.left_record
  if record and record.session then
    tell_master_released(channel, project, record.session, record.name, record.host)
  end
  master.left, master.left_record = nil, nil
end

-- Its entry in a standing; for a session of another program what the session plane says of it.
local function master_entry(master, sessions)
  if master.claim then
    return entry(master.claim, master.record)
  end
  local f = redis.pcall('HMGET', sessions .. master.session, 'machine_id', 'agent_identity')
  if f.err and not string.find(f.err, 'WRONGTYPE', 1, true) then
    error(f, 0)
  end
  return { master.session, false, f[1] or false, f[2] or false, 0, 0 }
end

-- Corrects what the session plane says of a session, if it knows it.
local function note_role(key, is_master)
  if redis.call('EXISTS', key) == 1 then
    redis.call('HSET', key, 'is_master', is_master and '1' or '0')
  end
end

-- Takes a session out of that hash. Returns its name and host, or nothing.
local function take_name(set, session)
  local known = redis.pcall('HGET', names_of(set), session)
  if type(known) == 'string' then
    redis.call('HDEL', names_of(set), session)
    known = cjson.decode(known)
    return known[1], known[2]
  end
end

-- Takes a session whose hash is gone out of its project; told of once, by whoever does it.
local function reap(set, session, channel)
  if redis.call('SREM', set, session) == 1 then
    tell_session_ended(channel, session, take_name(set, session))
  end
end
