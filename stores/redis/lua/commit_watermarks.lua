-- Moves W from one state to the next by compare-and-set, under the current epoch
-- and token, and sets the floor of each changed lane to its W (design 6.6). F is
-- raised with it, never lowered, and not compared: Begin moves it too.
--
-- The state that is to be made may stand already: then the answer to a first
-- request was lost, and the repeat is no conflict.
--
-- KEYS[1] shard (hash)
-- KEYS[2..] watermark of each lane (hash)
-- ARGV[1] epoch
-- ARGV[2] token (hex)
-- ARGV[3] F (16 hex)
-- ARGV[4] W of all lanes that the caller knows, 16 hex each
-- ARGV[5] W of all lanes to be, 16 hex each
local f, bad = owned(KEYS[1], ARGV[1], ARGV[2])
if bad then return bad end
local from, to = ARGV[4], ARGV[5]
local stored = {}
for i = 2, #KEYS do
  local w
  w, bad = read('watermark', 'HGET', KEYS[i], 'W')
  if bad then return bad end
  stored[i - 1] = w or zero
  if #stored[i - 1] ~= 16 then return corrupt('watermark') end
end
local all = table.concat(stored)
if not is_seqs(all, #stored) then return corrupt('watermark') end
local frontier = f
if ARGV[3] > f then frontier = ARGV[3] end

local changed = {}
if all ~= to then
  for lane = 0, #stored - 1 do
    local w, was, next = stored[lane + 1], string.sub(from, 16 * lane + 1, 16 * lane + 16), string.sub(to, 16 * lane + 1, 16 * lane + 16)
    local why
    if w ~= was then
      why = 'is ' .. w .. ', not ' .. was
    elseif next < w then
      why = 'would go back from ' .. w .. ' to ' .. next
    elseif next > frontier then
      why = 'would pass the frontier: ' .. next .. ' after ' .. frontier
    elseif next ~= w then
      changed[#changed + 1] = lane
    end
    if why then
      return refuse('CONFLICT', 'W of lane ' .. lane .. ' ' .. why)
    end
  end
end

if frontier ~= f then
  redis.call('HSET', KEYS[1], 'F', frontier)
end
for _, lane in ipairs(changed) do
  local w = string.sub(to, 16 * lane + 1, 16 * lane + 16)
  redis.call('HSET', KEYS[lane + 2], 'W', w, 'W_floor', w)
end
return 1
