-- What the scripts of a mailbox share: how its keys are named, read and found
-- to be sound. Everything here reads; what is written stands in the scripts.
--
-- A mailbox is known by its key mbmeta:{tenant}:{user}. Seqs are 16 hex digits,
-- so that they compare as text; '' is before all. Expiries are Unix seconds.

local call = redis.call

local VERSION = '4'
local MAX_DAYS = 31 -- active-day proofs of one epoch

-- Ends the work on a mailbox before anything of it is written. The word is
-- stable; the store and its tests know it.
local function refuse(word, what)
  error({err = 'LANEWAY CORRUPT ' .. word .. ' ' .. what})
end

-- The text of an error that pcall caught: ours, or that of a command.
local function message(e)
  local text = type(e) == 'table' and e.err or tostring(e)
  if string.sub(text, 1, 9) == 'WRONGTYPE' then
    return 'LANEWAY CORRUPT WRONG_TYPE a key holds another type than laneway writes'
  end
  return text
end

-- The later of the client's clock and the server's, in seconds: Redis expires
-- keys by its own.
local function clock(client_ms)
  local t = call('TIME')
  return math.max(client_ms / 1000, t[1] + t[2] / 1000000)
end

-- Reads the mailbox row. m.floor is the time that its days expire by: a day that
-- expired once stays expired, whatever the clocks do.
local function open_mailbox(key, prefix_length, now)
  local v = call('HMGET', key, 'retention_format_version', 'user_trim_seq', 'expired_gap_boundary', 'expired_through', 'next_expiry', 'epochs')
  local m = {
    key = key,
    prefix = string.sub(key, 1, prefix_length),
    name = string.sub(key, prefix_length + 7), -- :{tenant}:{user}
    known = v[1] ~= false,
    trim = v[2] or '',
    gap = v[3] or '',
    through = v[4] and tonumber(v[4]) or 0,
    next = v[5] and tonumber(v[5]) or nil,
    epochs = v[6] or '',
    floor = now,
  }
  if v[1] ~= VERSION then
    if v[1] then
      refuse('WRONG_VERSION', key .. ' has retention format version ' .. v[1] .. ', this build reads ' .. VERSION)
    end
    if call('EXISTS', key) == 1 then
      refuse('WRONG_VERSION', key .. ' has no retention format version')
    end
  end
  if m.through > now then
    m.floor = m.through
  end
  return m
end

-- The names of an epoch's keys.
local function name_epoch(m, epoch)
  local tail = m.name .. ':e' .. epoch
  return {
    epoch = epoch,
    meta = m.key .. ':e' .. epoch,
    days = m.prefix .. 'mbdays' .. tail,
    identity = m.prefix .. 'mbseqbucket' .. tail,
    bucket = m.prefix .. 'mailbox' .. tail .. ':', -- and the day
  }
end

local function list_epochs(m)
  local list = {}
  for epoch in string.gmatch(m.epochs, '%d+') do
    list[#list + 1] = epoch
  end
  return list
end

-- Compares a live day's bucket with the day's expiry.
local function check_bucket(key, expiry)
  local at = call('PEXPIRETIME', key)
  if at == expiry * 1000 then
    return
  elseif at == -2 then
    refuse('PROOF_WITHOUT_BUCKET', key .. ' is gone before its day has expired')
  elseif at == -1 then
    refuse('NO_EXPIRY', key .. ' has lost its expiry')
  end
  refuse('WRONG_EXPIRY', key .. ' does not expire when its day does')
end

-- Compares what there is of an expired day with its proof. Redis has dropped the
-- bucket, or will by its own clock.
local function check_expired(e, day, expiry)
  local key = e.bucket .. day
  local at = call('PEXPIRETIME', key)
  if at ~= -2 and at ~= expiry * 1000 then
    refuse('EXPIRED_DAY_PRESENT', key .. ' is there after its day has expired')
  end
  local top = call('ZRANGE', e.identity, expiry, expiry, 'BYSCORE', 'REV', 'LIMIT', 0, 1)[1]
  if not top then
    refuse('MISSING_IDENTITY', e.identity .. ' knows no seq of day ' .. day)
  end
  return top
end

-- Reads everything about an epoch and checks it. e.live and e.expired are lists
-- of {day, expiry}, in the order of expiry; e.top is the highest seq of the
-- expired ones.
local function load_epoch(m, epoch)
  local e = name_epoch(m, epoch)
  local fields = call('HGETALL', e.meta)
  local active, count, version = {}, 0, nil
  for i = 1, #fields, 2 do
    if fields[i] == 'retention_format_version' then
      version = fields[i + 1]
    else
      active[fields[i]] = fields[i + 1]
      count = count + 1
    end
  end
  if version ~= VERSION then
    refuse('WRONG_VERSION', e.meta .. ' has retention format version ' .. (version or 'none') .. ', this build reads ' .. VERSION)
  end
  e.live, e.expired, e.top = {}, {}, ''
  local proofs = call('ZRANGE', e.days, 0, -1, 'WITHSCORES')
  for i = 1, #proofs, 2 do
    local day, expiry = proofs[i], proofs[i + 1]
    local stored = active['d' .. day]
    if not stored then
      refuse('PROOF_WITHOUT_DAY', e.meta .. ' does not name day ' .. day)
    elseif stored ~= expiry then
      refuse('WRONG_EXPIRY', e.meta .. ' and ' .. e.days .. ' differ on day ' .. day)
    end
    expiry = tonumber(expiry)
    if expiry <= m.floor then
      local top = check_expired(e, day, expiry)
      if top > e.top then
        e.top = top
      end
      e.expired[#e.expired + 1] = {day, expiry}
    else
      check_bucket(e.bucket .. day, expiry)
      e.live[#e.live + 1] = {day, expiry}
    end
  end
  if count * 2 ~= #proofs then
    refuse('MISSING_PROOF', e.days .. ' lacks a day of ' .. e.meta)
  elseif #e.live > MAX_DAYS then
    refuse('TOO_MANY_DAYS', e.days .. ' has more than ' .. MAX_DAYS .. ' days')
  elseif count == 0 then
    refuse('MISSING_PROOF', e.meta .. ' has no day')
  elseif call('EXISTS', e.identity) == 0 then
    refuse('MISSING_IDENTITY', e.identity .. ' is gone')
  end
  return e
end

-- Reads and checks all epochs of a mailbox.
local function load_epochs(m)
  local loaded = {}
  for i, epoch in ipairs(list_epochs(m)) do
    loaded[i] = load_epoch(m, epoch)
  end
  return loaded
end
