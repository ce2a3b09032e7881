#!lua flags=allow-oom
-- Trims a mailbox: entries below a seq are invisible as soon as user_trim_seq
-- says so; then they are removed from the live days, some in every run. Days
-- that have expired are not touched but promoted, as before every write.
--
-- KEYS: mbmeta:{tenant}:{user}
-- ARGV: the client's time in ms, bytes of the key prefix, seq
-- Returns 1 when there is more to remove: run it again, else 0.

local BUDGET = 500 -- seqs to remove in one run

local m = open_mailbox(KEYS[1], tonumber(ARGV[2]), clock(tonumber(ARGV[1])))
local epochs = load_epochs(m)
for _, e in ipairs(epochs) do
  for _, d in ipairs(e.live) do
    local key = e.bucket .. d[1]
    if call('TYPE', key).ok ~= 'zset' then
      refuse('WRONG_TYPE', key .. ' is not a sorted set')
    end
  end
end
merge_expired(m, epochs)
if ARGV[3] > m.trim then
  m.trim = ARGV[3]
end
write_mailbox(m)

-- Removes what is below the trim from the days of an epoch that expire together
-- (one day, unless the retention was changed), and returns how many seqs that
-- were.
local function trim_days(e, expiry, names, budget)
  local seqs = call('ZRANGE', e.identity, expiry, expiry, 'BYSCORE', 'LIMIT', 0, budget)
  local count = 0
  while count < #seqs and seqs[count + 1] < m.trim do
    count = count + 1
  end
  if count == 0 then
    return 0
  end
  local last = tonumber(string.sub(seqs[count], 5), 16)
  for day in pairs(names) do
    call('ZREMRANGEBYSCORE', e.bucket .. day, '-inf', last)
  end
  local rank = call('ZCOUNT', e.identity, '-inf', '(' .. expiry)
  return call('ZREMRANGEBYRANK', e.identity, rank, rank + count - 1)
end

local budget = BUDGET
for _, e in ipairs(epochs) do
  local by_expiry = {}
  for _, d in ipairs(e.live) do
    by_expiry[d[2]] = by_expiry[d[2]] or {}
    by_expiry[d[2]][d[1]] = true
  end
  for expiry, names in pairs(by_expiry) do
    if budget > 0 then
      budget = budget - trim_days(e, expiry, names, budget)
    end
  end
  local live = {}
  for _, d in ipairs(e.live) do
    if call('EXISTS', e.bucket .. d[1]) == 1 then
      live[#live + 1] = d
    else
      call('ZREM', e.days, d[1])
      call('HDEL', e.meta, 'd' .. d[1])
    end
  end
  e.live = live
end
forget_expired(epochs)
sum_up(m, epochs)
write_mailbox(m)
return budget == 0 and 1 or 0
