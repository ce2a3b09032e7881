-- Writes a row by compare-and-set of its revision, which is in the row's first
-- bytes, and with it the mark of conversations that may have a pending record.
--
-- KEYS[1] row (string)
-- KEYS[2] pending conversations (zset), or none
-- ARGV[1] first bytes of the row that is expected
-- ARGV[2] '1' when no row is as good
-- ARGV[3] row to be
-- ARGV[4] conversation
-- ARGV[5] '1' to mark it as pending, '0' to clear its mark
local stored, bad = read('row', 'GETRANGE', KEYS[1], 0, #ARGV[1] - 1)
if bad then return bad end
if stored == '' and redis.call('EXISTS', KEYS[1]) == 0 then
  if ARGV[2] ~= '1' then
    return refuse('HEAD', 'there is none')
  end
elseif #stored ~= #ARGV[1] or string.byte(stored) ~= string.byte(ARGV[1]) then
  return corrupt('row')
elseif stored ~= ARGV[1] then
  return refuse('HEAD', 'it is at another revision')
end
if KEYS[2] then
  local _
  _, bad = read('pending heads', 'ZCARD', KEYS[2])
  if bad then return bad end
end
redis.call('SET', KEYS[1], ARGV[3])
if KEYS[2] then
  if ARGV[5] == '1' then
    redis.call('ZADD', KEYS[2], 0, ARGV[4])
  else
    redis.call('ZREM', KEYS[2], ARGV[4])
  end
end
return 1
