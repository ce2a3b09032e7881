-- Writes fence rows of an outbox partition. A stored row never falls: one whose
-- newest epoch, or with the same newest epoch whose base, is larger stays.
--
-- KEYS[1] rows (hash: conversation to row)
-- ARGV    for each row three: conversation, row, and newest epoch and base as 32
--         hex digits
--
-- A row is a version byte, the base, the number of epochs seen, and for each the
-- epoch and its offset; numbers have 8 bytes, the last epoch is the newest.
local function hex(bytes)
  return (string.gsub(bytes, '.', function(c) return string.format('%02x', string.byte(c)) end))
end

local function order(row)
  if string.byte(row) ~= 1 or #row < 10 then return nil end
  local base = hex(string.sub(row, 2, 9))
  local newest = base
  if string.byte(row, 10) ~= 0 then
    if #row < 26 then return nil end
    newest = hex(string.sub(row, #row - 15, #row - 8))
    if newest < base then newest = base end
  end
  return newest .. base
end

-- All are read before any is written: a script that fails leaves what it wrote.
local put = {}
for i = 1, #ARGV, 3 do
  local stored, bad = read('fence row', 'HGET', KEYS[1], ARGV[i])
  if bad then return bad end
  local was = ''
  if stored then
    was = order(stored)
    if not was then return corrupt('fence row') end
  end
  if was <= ARGV[i + 2] then
    put[#put + 1] = ARGV[i]
    put[#put + 1] = ARGV[i + 1]
  end
end
for i = 1, #put, 2 do
  redis.call('HSET', KEYS[1], put[i], put[i + 1])
end
return 1
