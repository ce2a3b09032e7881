-- What the scripts on a shard's state share. It is put before each of them.

-- Seq 0, before everything.
local zero = '0000000000000000'

-- refuse is an answer that the store turns into an error by its reason.
local function refuse(reason, detail)
  return redis.error_reply('LANEWAY ' .. reason .. ' ' .. detail)
end

-- corrupt says that what a key holds cannot be read. kind names it without its
-- ids.
local function corrupt(kind)
  return refuse('CORRUPT', 'the ' .. kind .. ' cannot be decoded')
end

-- read runs a command that reads. The second result is the answer to give when
-- the key holds another type.
local function read(kind, ...)
  local r = redis.pcall(...)
  if type(r) == 'table' and r.err then
    if string.find(r.err, 'WRONGTYPE', 1, true) then
      return nil, refuse('CORRUPT', 'the ' .. kind .. ' has another type')
    end
    return nil, r
  end
  return r
end

-- is_seqs tells whether a text holds n positions of 16 hex digits.
local function is_seqs(text, n)
  return #text == 16 * n and not string.find(text, '[^0-9a-f]')
end

-- whole reads a decimal number that a double holds exactly, or returns nil.
local function whole(text)
  return #text <= 16 and string.find(text, '^%d+$') and tonumber(text) or nil
end

-- owned checks that epoch and token are the current ones of a shard. It returns
-- F, or nil and the answer to give.
local function owned(key, epoch, token)
  local s, bad = read('shard state', 'HMGET', key, 'epoch', 'token', 'F')
  if bad then return nil, bad end
  if not s[1] or s[1] ~= epoch or s[2] ~= token then
    return nil, refuse('NOTOWNER', 'the shard is at epoch ' .. (s[1] or '0') .. ', the caller at ' .. epoch)
  end
  local f = s[3] or zero
  if not is_seqs(f, 1) then
    return nil, corrupt('shard state')
  end
  return f
end

-- clock is the time in ms that leases are judged by: the server's, which all
-- nodes share, or a test's, which is ahead of it.
local function clock(ms)
  local t = redis.call('TIME')
  return math.max(tonumber(ms), tonumber(t[1]) * 1000 + math.floor(tonumber(t[2]) / 1000))
end

-- A batch that is too large for one run is cut into steps, which go in one
-- pipeline: other clients are served between them. The key of the batch counts
-- the steps that were made, so that none is made after one that failed.
local function preceded(key, step)
  if step > 1 and redis.call('GET', key) ~= tostring(step - 1) then
    return refuse('ABORTED', 'step ' .. step)
  end
end

local function made(key, step, steps)
  if step < steps then
    redis.call('SET', key, step, 'PX', 60000)
  elseif steps > 1 then
    redis.call('DEL', key)
  end
  return 1
end
