-- Adds slots to a group's directory in one shard, and to who has which slot last.
-- Both only ever gain: written again, or late, it changes nothing.
--
-- KEYS[1] directory of the shard (zset): member = slot (8 hex), join seq (16
--         hex), user; score = slot
-- KEYS[2] latest slots of the group's users (hash): slot and join seq
-- ARGV    of each row: slot and join seq (24 hex), user
local _, bad = read('directory', 'ZCARD', KEYS[1])
if bad then return bad end
local users, rows = {}, {}
for i = 1, #ARGV, 2 do
  users[#users + 1] = ARGV[i + 1]
  rows[#rows + 1] = tonumber(string.sub(ARGV[i], 1, 8), 16)
  rows[#rows + 1] = ARGV[i] .. ARGV[i + 1]
end
local stored
stored, bad = read('latest slots', 'HMGET', KEYS[2], unpack(users))
if bad then return bad end
local latest = {}
for i, user in ipairs(users) do
  local last = latest[user] or stored[i] or ''
  if last ~= '' and (#last ~= 24 or string.find(last, '[^0-9a-f]')) then return corrupt('latest slots') end
  if last < ARGV[2 * i - 1] then
    latest[user] = ARGV[2 * i - 1]
  end
end
redis.call('ZADD', KEYS[1], unpack(rows))
local changes = {}
for user, last in pairs(latest) do
  changes[#changes + 1] = user
  changes[#changes + 1] = last
end
if #changes > 0 then
  redis.call('HSET', KEYS[2], unpack(changes))
end
return 1
