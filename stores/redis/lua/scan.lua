-- Looks at a piece of a mailbox: makes the same checks as a write, finds out
-- where the entries lie, and reads them if they are few.
--
-- KEYS: mbmeta:{tenant}:{user}
-- ARGV: the client's time in ms, bytes of the key prefix,
--       seq that the reader has seen, seq to read from, '(' to read behind it or
--       '' to read it too, last seq,
--       'plan' to read nothing, 'read' to read, 'auto' to read when they are few
--       or days overlap,
--       most entries and most bytes to read
-- Returns user_trim_seq, the gap boundary, the next expiry of a day (0: none),
-- 1 when the entries do not reach the last seq (2: they lie in days that overlap,
-- so that their order is not that of a plan), the entries in the order of seqs, and, when none are read, where they lie, in the same order: for each
-- stretch its key, lowest and highest score, how many entries it has, and its
-- epoch. A reader that has missed entries gets neither.

local FEW = 128
local CALLS = 120 -- to Redis, in one run, where days overlap

local m = open_mailbox(KEYS[1], tonumber(ARGV[2]), clock(tonumber(ARGV[1])))
local seen, from, open, up_to, mode = ARGV[3], ARGV[4], ARGV[5], ARGV[6], ARGV[7]
local most_entries, most_bytes = tonumber(ARGV[8]), tonumber(ARGV[9])

local function epoch_of(seq)
  return tonumber(string.sub(seq, 1, 4), 16)
end

local function offset_of(seq)
  return string.format('%.0f', tonumber(string.sub(seq, 5), 16))
end

if m.trim > from then
  from, open = m.trim, ''
end
local first, last = epoch_of(from), epoch_of(up_to)
if not m.known and call('EXISTS', m.key .. ':e' .. epoch_of(seen), m.key .. ':e' .. last) > 0 then
  refuse('EPOCH_WITHOUT_MAILBOX', m.key .. ' is gone')
end
local epochs, next_expiry = {}, 0
for _, epoch in ipairs(list_epochs(m)) do
  -- What an earlier epoch has lost lies before the reader.
  if tonumber(epoch) >= epoch_of(seen) then
    local e = load_epoch(m, epoch)
    epochs[#epochs + 1] = e
    for _, d in ipairs(e.live) do
      if next_expiry == 0 or d[2] < next_expiry then
        next_expiry = d[2]
      end
    end
  end
end
merge_expired(m, epochs)
if seen < m.gap then
  return {m.trim, m.gap, next_expiry, 0, {}, {}}
end

-- A day's score at one end of a range, or nil.
local function end_of(key, min, max, last_one)
  if last_one then
    return call('ZRANGE', key, max, min, 'BYSCORE', 'REV', 'LIMIT', 0, 1, 'WITHSCORES')[2]
  end
  return call('ZRANGE', key, min, max, 'BYSCORE', 'LIMIT', 0, 1, 'WITHSCORES')[2]
end

-- The stretches of an epoch, in order, and whether they overlap.
local function find_stretches(e, min, max)
  local list, overlap = {}, false
  for _, d in ipairs(e.live) do
    local key = e.bucket .. d[1]
    local count = call('ZCOUNT', key, min, max)
    if count > 0 then
      list[#list + 1] = {key = key, min = min, max = max, count = count, epoch = tonumber(e.epoch)}
    end
  end
  if #list > 1 then
    for _, s in ipairs(list) do
      s.head = end_of(s.key, min, max)
      s.from, s.to = tonumber(s.head), tonumber(end_of(s.key, min, max, true))
    end
    table.sort(list, function(a, b) return a.from < b.from end)
    for i = 2, #list do
      overlap = overlap or list[i].from < list[i - 1].to
    end
  end
  return list, overlap
end

local stretches, total, overlapping = {}, 0, false
for _, e in ipairs(epochs) do
  local n = tonumber(e.epoch)
  if n >= first and n <= last then
    local list, overlap = find_stretches(e, n == first and open .. offset_of(from) or '-inf', n == last and offset_of(up_to) or '+inf')
    overlapping = overlapping or overlap
    for _, s in ipairs(list) do
      total = total + s.count
    end
    stretches[#stretches + 1] = list
  end
end

if mode == 'plan' or mode == 'auto' and total > FEW and not overlapping then
  local plan = {}
  for _, list in ipairs(stretches) do
    for _, s in ipairs(list) do
      local n = #plan
      plan[n + 1], plan[n + 2], plan[n + 3], plan[n + 4], plan[n + 5] = s.key, s.min, s.max, s.count, s.epoch
    end
  end
  return {m.trim, m.gap, next_expiry, overlapping and 2 or total > 0 and 1 or 0, {}, plan}
end

local entries, count, bytes, calls = {}, 0, 0, 0

local function full()
  return count >= most_entries or bytes >= most_bytes
end

-- Reads a day from min to max until either ends, in steps that grow: how many
-- entries the bytes allow is known only from those that were read.
local function read_day(key, min, max)
  local done = 0
  while not full() do
    local step = 16
    if count > 0 then
      step = math.min(8 * count, math.ceil((most_bytes - bytes) * count / bytes))
    end
    step = math.min(step, most_entries - count)
    local page = call('ZRANGE', key, min, max, 'BYSCORE', 'LIMIT', done, step)
    calls = calls + 1
    for i = 1, #page do
      bytes = bytes + #page[i]
      entries[count + i] = page[i]
    end
    count = count + #page
    done = done + #page
    if #page < step then
      return true
    end
  end
  return false
end

-- Reads the stretches of an epoch. Where they overlap, the one that is behind is
-- read up to the next.
local function read_stretches(list)
  while #list > 0 do
    table.sort(list, function(a, b) return (a.from or 0) < (b.from or 0) end)
    local s, bound = list[1], list[1].max
    if list[2] then
      bound = '(' .. list[2].head
    end
    if not read_day(s.key, s.head or s.min, bound) then
      return false
    end
    s.head = list[2] and end_of(s.key, list[2].head, s.max)
    calls = calls + 1
    if s.head then
      s.from = tonumber(s.head)
    else
      table.remove(list, 1)
    end
    if calls > CALLS and #list > 0 then
      return false
    end
  end
  return true
end

local more = 0
for _, list in ipairs(stretches) do
  if #list > 0 and (full() or not read_stretches(list)) then
    more = 1
    break
  end
end
return {m.trim, m.gap, next_expiry, more, entries, {}}
