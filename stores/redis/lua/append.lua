-- Appends event groups to mailboxes. Each mailbox is validated as a whole, then
-- written as a whole; one that does not fit is refused with nothing written and
-- keeps nobody else's back.
--
-- KEYS: for each lane its lanedays key, then mbmeta:{tenant}:{user} of each of
--       its mailboxes
-- ARGV: the client's time in ms, bytes of the key prefix, retention in days,
--       count of days, for each: epoch, day, expiry,
--       count of positions, for each: seq, its offset, index of its day,
--       count of lanes, for each:
--         count of days, for each: day, highest seq of the lane,
--         count of parts, for each:
--           index of the position, count of mailboxes that get as many entries
--           each at this position, count of entries; the entries
--           or 0, 1, 0 and a mailbox of several groups: count of groups, for
--           each: index of the position, count of entries; the entries
-- Returns nothing, or for each mailbox that was refused its index and the reason.

local prefix_length = tonumber(ARGV[2])
local now = clock(tonumber(ARGV[1]))
local at = 3 -- the next argument

local KEYS, ARGV = KEYS, ARGV

local function take()
  at = at + 1
  return ARGV[at]
end

local function take_number()
  at = at + 1
  return tonumber(ARGV[at])
end

local days, positions = {}, {}
for i = 1, take_number() do
  local epoch, day, expiry = take(), take(), take()
  days[i] = {
    epoch = epoch, day = day, expiry = tonumber(expiry),
    expiry_text = expiry, expiry_ms = expiry * 1000, tail = ':e' .. epoch, field = 'd' .. day, suffix = ':' .. day,
  }
end
for i = 1, take_number() do
  positions[tostring(i)] = {seq = take(), offset = take(), day = days[take_number()]}
end

local prefix = string.sub(KEYS[1], 1, prefix_length)
local bucket_prefix, days_prefix, identity_prefix = prefix .. 'mailbox', prefix .. 'mbdays', prefix .. 'mbseqbucket'

-- ZADD of a group's entries.
local function add_entries(bucket, p, first, count)
  if count == 1 then
    return call('ZADD', bucket, p.offset, ARGV[first])
  end
  local w = {'ZADD', bucket}
  for i = 1, count do
    w[2 * i + 1], w[2 * i + 2] = p.offset, ARGV[first + i - 1]
  end
  return call(unpack(w))
end

-- Begins a mailbox, of which there is nothing yet.
local function append_first(key, p, first, count)
  local d = p.day
  local name = string.sub(key, prefix_length + 7) .. d.tail
  local meta, bucket, identity, proofs = key .. d.tail, bucket_prefix .. name .. d.suffix, identity_prefix .. name, days_prefix .. name
  if d.expiry <= now or call('EXISTS', key, meta, proofs, identity, bucket) > 0 then
    return false
  end
  add_entries(bucket, p, first, count)
  call('EXPIREAT', bucket, d.expiry_text)
  call('ZADD', identity, d.expiry_text, p.seq)
  call('ZADD', proofs, d.expiry_text, d.day)
  call('HSET', meta, 'retention_format_version', VERSION, d.field, d.expiry_text)
  call('HSET', key, 'retention_format_version', VERSION, 'epochs', d.epoch, 'next_expiry', d.expiry_text)
  return true
end

-- The usual case, in as few commands as its checks allow: one new group of a day
-- that the mailbox has. Everything else is not for it, and is found out, and
-- named, by append. It leaves mbdays to those who begin or end days and to the
-- readers: what it would tell is in the epoch's row.
local function append_one(key, p, first, count)
  local v = call('HMGET', key, 'retention_format_version', 'next_expiry', 'user_trim_seq')
  if not v[1] then
    return append_first(key, p, first, count)
  elseif v[1] ~= VERSION or not v[2] or tonumber(v[2]) <= now or v[3] and p.seq < v[3] then
    return false
  end
  local d = p.day
  v = call('HMGET', key .. d.tail, 'retention_format_version', d.field)
  if v[1] ~= VERSION or v[2] ~= d.expiry_text then
    return false
  end
  local name = string.sub(key, prefix_length + 7) .. d.tail
  local bucket, identity = bucket_prefix .. name .. d.suffix, identity_prefix .. name
  if call('PEXPIRETIME', bucket) ~= d.expiry_ms or call('EXISTS', identity) == 0 or call('ZADD', identity, 'NX', d.expiry_text, p.seq) == 0 then
    return false
  end
  local ok, e = pcall(add_entries, bucket, p, first, count)
  if not ok then -- the bucket is of another type
    call('ZREM', identity, p.seq)
    error(e, 0)
  end
  return true
end

-- Reads an epoch's row for a first day, in one call.
local function open_epoch(m, epoch, day)
  local e = name_epoch(m, epoch)
  local v = call('HMGET', e.meta, 'retention_format_version', 'd' .. day)
  e.known = v[1] ~= false
  e.first_day, e.first = day, v[2]
  local listed = string.find(' ' .. m.epochs .. ' ', ' ' .. epoch .. ' ', 1, true)
  if not e.known then
    if listed or call('EXISTS', e.meta, e.days, e.identity) > 0 then
      refuse('WRONG_VERSION', e.meta .. ' has no retention format version')
    end
  elseif v[1] ~= VERSION then
    refuse('WRONG_VERSION', e.meta .. ' has retention format version ' .. v[1] .. ', this build reads ' .. VERSION)
  elseif not listed then
    refuse('EPOCH_WITHOUT_MAILBOX', m.key .. ' does not list epoch ' .. epoch)
  end
  return e
end

-- Finds out whether a day is live, and that what there is of it is sound.
-- Returns nil for a day that has expired.
local function open_day(m, e, d)
  local stored
  if e.first_day == d.day then
    stored = e.first
  elseif e.known then
    stored = call('HGET', e.meta, 'd' .. d.day)
  end
  local key = e.bucket .. d.day
  if stored then
    local expiry = tonumber(stored)
    local proof = call('ZSCORE', e.days, d.day)
    if not proof then
      refuse('MISSING_PROOF', e.days .. ' lacks day ' .. d.day)
    elseif proof ~= stored then
      refuse('WRONG_EXPIRY', e.meta .. ' and ' .. e.days .. ' differ on day ' .. d.day)
    elseif expiry <= m.floor then
      check_expired(e, d.day, expiry)
      return nil
    end
    check_bucket(key, expiry)
    return {epoch = e, day = d.day, key = key, expiry = expiry, known = true}
  end
  if d.expiry <= m.floor then
    return nil
  end
  if e.known and call('ZSCORE', e.days, d.day) then
    refuse('PROOF_WITHOUT_DAY', e.meta .. ' does not name day ' .. d.day)
  end
  if call('EXISTS', key) == 1 then
    refuse('BUCKET_WITHOUT_PROOF', key .. ' belongs to no day of ' .. e.days)
  end
  e.size = (e.size or e.known and call('ZCARD', e.days) or 0) + 1
  if e.size > MAX_DAYS then
    refuse('TOO_MANY_DAYS', e.days .. ' has ' .. MAX_DAYS .. ' days')
  end
  return {epoch = e, day = d.day, key = key, expiry = d.expiry, known = false}
end

-- Tells whether a group is in its day already, byte for byte. A seq of another
-- day, or other bytes at the same seq, are refused.
local function is_repeated(b, p, first, count)
  local e = b.epoch
  if not e.known then
    return false
  end
  local score = call('ZSCORE', e.identity, p.seq)
  if not score then
    if not e.identity_exists then
      if call('EXISTS', e.identity) == 0 then
        refuse('MISSING_IDENTITY', e.identity .. ' is gone')
      end
      e.identity_exists = true
    end
    return false
  end
  e.identity_exists = true
  if tonumber(score) ~= b.expiry or not b.known then
    refuse('CROSS_DAY_REPLAY', e.identity .. ' has seq ' .. p.seq .. ' in another day than ' .. b.day)
  end
  local stored = {}
  for _, entry in ipairs(call('ZRANGE', b.key, p.offset, p.offset, 'BYSCORE')) do
    stored[entry] = true
  end
  if next(stored) == nil then
    refuse('CROSS_DAY_REPLAY', b.key .. ' lacks seq ' .. p.seq .. ', which ' .. e.identity .. ' has')
  end
  for i = first, first + count - 1 do
    if not stored[ARGV[i]] then
      refuse('CHANGED_ENTRY', b.key .. ' has other bytes at seq ' .. p.seq)
    end
  end
  return true
end

local function later(a, b)
  if a > b then
    return a
  end
  return b
end

-- Adds an epoch to the list of a mailbox, which is in their order.
local function add_epoch(list, epoch)
  local names, added = {}, false
  for name in string.gmatch(list, '%d+') do
    if not added and tonumber(name) > tonumber(epoch) then
      names[#names + 1], added = epoch, true
    end
    names[#names + 1] = name
  end
  if not added then
    names[#names + 1] = epoch
  end
  return table.concat(names, ' ')
end

-- Tells the epochs that were loaded of a day that was begun.
local function note_day(loaded, b)
  for _, e in ipairs(loaded) do
    if e.epoch == b.epoch.epoch then
      e.live[#e.live + 1] = {b.day, b.expiry}
      return
    end
  end
  loaded[#loaded + 1] = {epoch = b.epoch.epoch, live = {{b.day, b.expiry}}, expired = {}}
end

-- The days that an epoch keeps, if it was loaded to promote others.
local function count_live(loaded, epoch)
  for _, e in ipairs(loaded or {}) do
    if e.epoch == epoch then
      return #e.live
    end
  end
end

-- What one mailbox gets: groups of {position, first argument, count}.
local function append(key, groups)
  local m = open_mailbox(key, prefix_length, now)
  local old
  if m.next and m.next <= m.floor then
    old = load_epochs(m)
    merge_expired(m, old)
  end
  local changed = old ~= nil
  local epochs, buckets, writes, new = {}, {}, {}, {}
  local seen = #groups > 1 and {} or nil

  for _, g in ipairs(groups) do
    local p = g[1]
    if p.seq >= m.trim then
      local d = p.day
      local b = buckets[d]
      if b == nil then
        local e = epochs[d.epoch]
        if not e then
          e = open_epoch(m, d.epoch, d.day)
          epochs[d.epoch] = e
          e.size = count_live(old, d.epoch)
        end
        b = open_day(m, e, d) or false
        buckets[d] = b
      end
      if not b then
        if p.seq > m.gap then
          m.gap = p.seq
          changed = true
        end
        if d.expiry > m.through and d.expiry <= m.floor then
          m.through = d.expiry
          changed = true
        end
      else
        if seen then
          if seen[p.seq] and seen[p.seq] ~= b then
            refuse('CROSS_DAY_REPLAY', 'one call has seq ' .. p.seq .. ' of ' .. key .. ' in two days')
          end
          seen[p.seq] = b
        end
        if not is_repeated(b, p, g[2], g[3]) then
          local w = b.write
          if not w then
            w = {'ZADD', b.key}
            b.write, b.seqs = w, {'ZADD', b.epoch.identity}
            writes[#writes + 1] = b
          end
          local n = #w
          for i = g[2], g[2] + g[3] - 1 do
            w[n + 1], w[n + 2] = p.offset, ARGV[i]
            n = n + 2
          end
          local seqs = b.seqs
          n = #seqs
          seqs[n + 1], seqs[n + 2] = b.expiry, p.seq
        end
      end
    end
  end
  -- The first ZADD finds a bucket of another type by itself.
  if changed or #writes > 1 then
    for _, b in ipairs(writes) do
      if b.known and call('TYPE', b.key).ok ~= 'zset' then
        refuse('WRONG_TYPE', b.key .. ' is not a sorted set')
      end
    end
  end

  -- From here on it is written.
  for _, b in ipairs(writes) do
    call(unpack(b.write))
    local e = b.epoch
    call(unpack(b.seqs))
    if not b.known then
      call('EXPIREAT', b.key, b.expiry)
      call('ZADD', e.days, b.expiry, b.day)
      if e.known then
        call('HSET', e.meta, 'd' .. b.day, b.expiry)
      else
        call('HSET', e.meta, 'retention_format_version', VERSION, 'd' .. b.day, b.expiry)
        e.known = true
        m.epochs = add_epoch(m.epochs, e.epoch)
        changed = true
      end
      new[#new + 1] = b
      if not m.next or b.expiry < m.next then
        m.next = b.expiry
        changed = true
      end
    end
  end
  if changed then
    write_mailbox(m)
  end
  if old then
    forget_expired(old)
    for _, b in ipairs(new) do
      note_day(old, b)
    end
    sum_up(m, old)
    write_mailbox(m)
  end
end

-- Merges a lane's expired days into one field, when a day is begun.
local function fold_lane_days(key)
  local retention, fields = tonumber(ARGV[3]), call('HGETALL', key)
  local top, gone = '', {}
  for i = 1, #fields, 2 do
    if fields[i] == 'expired' then
      top = later(top, fields[i + 1])
    elseif (tonumber(fields[i]) + 1 + retention) * 86400 <= now then
      top = later(top, fields[i + 1])
      gone[#gone + 1] = fields[i]
    end
  end
  if #gone > 0 then
    call('HSET', key, 'expired', top)
    call('HDEL', key, unpack(gone))
  end
end

-- The arguments of a mailbox with several groups, and what is behind them.
local function read_groups(first)
  local groups, at = {}, first + 1
  for j = 1, tonumber(ARGV[first]) do
    local count = tonumber(ARGV[at + 1])
    groups[j] = {positions[ARGV[at]], at + 2, count}
    at = at + 2 + count
  end
  return groups, at
end

local refused, key = {}, 1

-- Appends to the mailboxes of a lane, which begin at a key and an argument, and
-- tells whether any was written.
local function append_lane(fault)
  local written = false
  for _ = 1, take_number() do
    local p, mailboxes, count = positions[take()], take_number(), take_number()
    for _ = 1, mailboxes do
      local ok, e = fault == nil, fault
      key = key + 1
      if p then
        if ok then
          ok, e = pcall(append_one, KEYS[key], p, at + 1, count)
          if ok and not e then
            ok, e = pcall(append, KEYS[key], {{p, at + 1, count}})
          end
        end
        at = at + count
      else
        local groups
        groups, at = read_groups(at + 1)
        at = at - 1
        if ok then
          ok, e = pcall(append, KEYS[key], groups)
        end
      end
      if ok then
        written = true
      else
        refused[#refused + 1], refused[#refused + 2] = key, message(e)
      end
    end
  end
  return written
end

for _ = 1, take_number() do
  local lane, names, seqs = KEYS[key], {}, {}
  for i = 1, take_number() do
    names[i], seqs[i] = take(), take()
  end
  local ok, stored = pcall(call, 'HMGET', lane, unpack(names))
  local written
  if ok then
    written = append_lane()
  else
    written = append_lane(stored)
  end
  if written then
    for i, day in ipairs(names) do
      if not stored[i] then
        fold_lane_days(lane)
      end
      if not stored[i] or stored[i] < seqs[i] then
        call('HSET', lane, day, seqs[i])
      end
    end
  end
  key = key + 1
end
if #refused > 0 then
  return refused
end
return false
