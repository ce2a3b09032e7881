-- Makes a batch of a shard durable before anything of it is appended (design
-- 6.1): fences, index, progress, then F. It validates everything, then writes: a
-- refused batch writes nothing. A dispatch begun again as it is stored changes
-- nothing.
--
-- A large batch comes in steps: all are validated before the first is written,
-- and F comes with the last.
--
-- KEYS[1] shard (hash)
-- KEYS[2] steps of the batch (string)
-- KEYS[3] fences of the shard (hash)
-- KEYS[4] progress index of the shard (zset)
-- KEYS[5..] dispatches that begin, then dispatches seen again (hash)
-- ARGV[1] epoch
-- ARGV[2] token (hex)
-- ARGV[3] step, from 1
-- ARGV[4] number of steps
-- ARGV[5] '1' to write, '0' to validate only
-- ARGV[6] F (16 hex); seq 0: unchanged
-- ARGV[7] number of fences; of each: conversation, row
-- then    number of dispatches that begin; of each: what it begins as (seq in 16
--         hex, payload digest in 32 bytes, manifest, which is empty before the
--         expansion), row, index member
-- then    number of dispatches seen again; of each: seq (16 hex), offset, ms
local f, bad = owned(KEYS[1], ARGV[1], ARGV[2])
if bad then return bad end
local step, steps = tonumber(ARGV[3]), tonumber(ARGV[4])
bad = preceded(KEYS[2], step)
if bad then return bad end

local identitySize = 16 + 32
local fences = tonumber(ARGV[7])
local beginsAt = 8 + 2 * fences
local begins = tonumber(ARGV[beginsAt])
local repeatsAt = beginsAt + 1 + 3 * begins
local repeats = tonumber(ARGV[repeatsAt])

local _
_, bad = read('fences', 'HLEN', KEYS[3])
if bad then return bad end
_, bad = read('progress index', 'ZCARD', KEYS[4])
if bad then return bad end

-- Most dispatches are new, and one command says so of all.
local any = begins > 0 and redis.call('EXISTS', unpack(KEYS, 5, 4 + begins)) > 0
local begun, writes, members = {}, {}, {}
for i = 1, begins do
  local key, at = KEYS[4 + i], beginsAt + 3 * i - 2
  local as, known = ARGV[at], begun[KEYS[4 + i]]
  if any and not known then
    known, bad = read('dispatch progress', 'HGET', key, 'begun')
    if bad then return bad end
    if known and (#known < identitySize or not is_seqs(string.sub(known, 1, 16), 1)) or
        not known and redis.call('EXISTS', key) > 0 then
      return corrupt('dispatch progress')
    end
  end
  if not known then
    begun[key] = as
    writes[#writes + 1] = i
    members[#members + 1] = 0
    members[#members + 1] = ARGV[at + 2]
  elseif known ~= as then
    local id, seq = string.sub(key, -32), string.sub(known, 1, 16)
    if seq ~= string.sub(as, 1, 16) then
      return refuse('KNOWN', 'dispatch ' .. id .. ' began at ' .. seq .. ', not at ' .. string.sub(as, 1, 16))
    elseif string.sub(known, 1, identitySize) ~= string.sub(as, 1, identitySize) then
      return refuse('MANIFEST', 'dispatch ' .. id .. ' at ' .. seq .. ' began with another payload digest')
    elseif #known == identitySize then
      begun[key] = as
      writes[#writes + 1] = i
    elseif #as > identitySize then
      return refuse('MANIFEST', 'dispatch ' .. id .. ' at ' .. seq .. ' began with other chunks')
    end
  end
end
for i = 1, repeats do
  local key, at = KEYS[4 + begins + i], repeatsAt + 3 * i - 2
  local r
  r, bad = read('dispatch progress', 'HMGET', key, 'begun', 'max_offset', 'last_seen')
  if bad then return bad end
  if r[2] and not whole(r[2]) or r[3] and not whole(r[3]) then
    return corrupt('dispatch progress')
  end
  local known = begun[key] or r[1]
  if not known or string.sub(known, 1, 16) ~= ARGV[at] then
    return refuse('NOTFOUND', 'dispatch ' .. string.sub(key, -32) .. ' did not begin at ' .. ARGV[at])
  end
end
if ARGV[5] == '0' then
  return made(KEYS[2], step, steps)
end

if fences > 0 then
  redis.call('HSET', KEYS[3], unpack(ARGV, 8, 7 + 2 * fences))
end
if #members > 0 then
  redis.call('ZADD', KEYS[4], unpack(members))
end
for _, i in ipairs(writes) do
  local at = beginsAt + 3 * i - 2
  redis.call('HSET', KEYS[4 + i], 'begun', ARGV[at], 'row', ARGV[at + 1])
end
for i = 1, repeats do
  local key, at = KEYS[4 + begins + i], repeatsAt + 3 * i - 2
  local r = redis.call('HMGET', key, 'max_offset', 'last_seen')
  for j, field in ipairs({'max_offset', 'last_seen'}) do
    if not r[j] or tonumber(ARGV[at + j]) > tonumber(r[j]) then
      redis.call('HSET', key, field, ARGV[at + j])
    end
  end
end
if ARGV[6] > f then
  redis.call('HSET', KEYS[1], 'F', ARGV[6])
end
return made(KEYS[2], step, steps)
