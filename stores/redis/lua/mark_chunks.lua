-- Marks chunks as durable, checked against the manifests that Begin stored
-- (design 3.2). It validates everything, then writes. A large batch comes in
-- steps: all are validated before the first is written.
--
-- What a dispatch began as ends with the lanes of its manifest, 8 bytes each:
-- lane (1), users (4), chunks (3, big-endian). Chunks are counted through the
-- lanes. Marks are bits, the lowest of the first byte first.
--
-- KEYS[1] shard (hash)
-- KEYS[2] steps of the batch (string)
-- KEYS[3..] dispatches (hash), each once
-- ARGV[1] epoch
-- ARGV[2] token (hex)
-- ARGV[3] step, from 1
-- ARGV[4] number of steps
-- ARGV[5] '1' to write, '0' to validate only
-- ARGV[6] length of what a dispatch began as before its lanes
-- then    of each dispatch: seq (16 hex), number of chunks; of each chunk: lane,
--         index
local _, bad = owned(KEYS[1], ARGV[1], ARGV[2])
if bad then return bad end
local step, steps = tonumber(ARGV[3]), tonumber(ARGV[4])
bad = preceded(KEYS[2], step)
if bad then return bad end

local head, at = tonumber(ARGV[6]), 7
local marked = {}
for k = 3, #KEYS do
  local r
  r, bad = read('dispatch progress', 'HMGET', KEYS[k], 'begun', 'marks')
  if bad then return bad end
  local begun, marks = r[1], r[2] or ''
  local id = string.sub(KEYS[k], -32)
  if not begun then
    return refuse('UNKNOWN_CHUNK', 'dispatch ' .. id .. ' never began')
  elseif not is_seqs(string.sub(begun, 1, 16), 1) or #begun > head and (#begun - head) % 8 ~= 0 then
    return corrupt('dispatch progress')
  elseif string.sub(begun, 1, 16) ~= ARGV[at] then
    return refuse('UNKNOWN_CHUNK', 'dispatch ' .. id .. ' began at ' .. string.sub(begun, 1, 16) .. ', not at ' .. ARGV[at])
  end
  local first, count, total = {}, {}, 0
  for b = head + 1, #begun, 8 do
    local lane, _, _, _, _, c1, c2, c3 = string.byte(begun, b, b + 7)
    first[lane], count[lane] = total, c1 * 65536 + c2 * 256 + c3
    total = total + count[lane]
  end
  if #marks > math.ceil(total / 8) then return corrupt('dispatch progress') end
  local before = marks
  for _ = 1, tonumber(ARGV[at + 1]) do
    local lane, index = tonumber(ARGV[at + 2]), tonumber(ARGV[at + 3])
    at = at + 2
    if not first[lane] or index < 0 or index >= count[lane] then
      return refuse('UNKNOWN_CHUNK', 'dispatch ' .. id .. ' has no chunk ' .. index .. ' in lane ' .. lane)
    end
    local n = first[lane] + index
    local i, mask = math.floor(n / 8) + 1, 2 ^ (n % 8)
    if #marks < i then
      marks = marks .. string.rep('\0', i - #marks)
    end
    local byte = string.byte(marks, i)
    if byte % (2 * mask) < mask then
      marks = string.sub(marks, 1, i - 1) .. string.char(byte + mask) .. string.sub(marks, i + 1)
    end
  end
  at = at + 2
  if marks ~= before then
    marked[k] = marks
  end
end
if ARGV[5] == '0' then
  return made(KEYS[2], step, steps)
end
for k, marks in pairs(marked) do
  redis.call('HSET', KEYS[k], 'marks', marks)
end
return made(KEYS[2], step, steps)
