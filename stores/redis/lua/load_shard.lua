-- Reads a shard's state and all its watermarks at one moment.
--
-- KEYS[1] shard (hash)
-- KEYS[2..] watermark of each lane (hash)
--
-- Returns epoch, token, owner, address, lease, boundaries, F, incarnation, then
-- W and floor of each lane; a missing field is nil.
local out, bad = read('shard state', 'HMGET', KEYS[1],
  'epoch', 'token', 'owner', 'address', 'lease', 'boundaries', 'F', 'incarnation')
if bad then return bad end
for i = 2, #KEYS do
  local w
  w, bad = read('watermark', 'HMGET', KEYS[i], 'W', 'W_floor')
  if bad then return bad end
  out[#out + 1] = w[1]
  out[#out + 1] = w[2]
end
return out
