-- Makes a new owner of a shard (design 2.1, 8.2 T2): the epoch after the larger
-- of the store's and the log's, and a new token. Asked again with the token that
-- is current it renews the lease and gives the same epoch: the answer to a first
-- request may have been lost.
--
-- KEYS[1] shard (hash)
-- ARGV[1] epoch of the log's last EpochRecord, 0 for none
-- ARGV[2] token (hex)
-- ARGV[3] name of the owner
-- ARGV[4] address of its API
-- ARGV[5] length of the lease in ms
-- ARGV[6] a test's clock in ms, or 0
-- ARGV[7] incarnation of the server
--
-- Returns the epoch.
local state, bad = read('shard state', 'HMGET', KEYS[1], 'epoch', 'token', 'lease', 'owner')
if bad then return bad end
local epoch, lease = whole(state[1] or '0'), whole(state[3] or '0')
if not epoch or not lease or (state[1] and not state[2]) then
  return corrupt('shard state')
end
local now = clock(ARGV[6])
local log = tonumber(ARGV[1])
if epoch == 0 or state[2] ~= ARGV[2] or log > epoch then
  if lease > now and state[2] ~= ARGV[2] then
    return refuse('LEASE', string.format('by %s for %d ms more', state[4] or '', lease - now))
  end
  epoch = math.max(epoch, log) + 1
  if epoch > 65535 then
    return refuse('RANGE', 'shard epoch 65535 is the last; move the shard\'s users to a new deployment')
  end
end
redis.call('HSET', KEYS[1], 'epoch', epoch, 'token', ARGV[2], 'owner', ARGV[3], 'address', ARGV[4],
  'lease', string.format('%d', now + tonumber(ARGV[5])), 'incarnation', ARGV[7])
return epoch
