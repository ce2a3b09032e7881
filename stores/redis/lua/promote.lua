-- Natural expiry: moves what the expired days prove into the gap boundary and
-- forgets them. load_epochs has found everything sound before; the boundary is
-- written before anything is removed. A day of very many seqs is forgotten over
-- several runs: its highest seqs go last.

local FORGET = 500 -- seqs to forget in one run

-- Raises m.gap and m.through by the expired days of the epochs. It only counts;
-- the caller writes them.
local function merge_expired(m, epochs)
  for _, e in ipairs(epochs) do
    if e.top > m.gap then
      m.gap = e.top
    end
    for _, d in ipairs(e.expired) do
      m.through = math.max(m.through, d[2])
    end
  end
end

-- Removes the expired days of the epochs, within a budget, and returns those
-- that were forgotten whole out of e.expired.
local function forget_expired(epochs)
  local budget = FORGET
  for _, e in ipairs(epochs) do
    local left = {}
    for _, d in ipairs(e.expired) do
      local count = call('ZCOUNT', e.identity, '-inf', d[2])
      local gone = math.min(budget, count)
      if gone > 0 then
        call('ZREMRANGEBYRANK', e.identity, 0, gone - 1)
        budget = budget - gone
      end
      if gone == count then
        call('ZREM', e.days, d[1])
        call('HDEL', e.meta, 'd' .. d[1])
      else
        left[#left + 1] = d
      end
    end
    e.expired = left
  end
end

-- Drops the rows of epochs that have no day left, and sets m.epochs and m.next
-- to what is there now. An epoch of which nothing is loaded stays listed.
local function sum_up(m, epochs)
  local empty, next_expiry = {}, nil
  for _, e in ipairs(epochs) do
    for _, list in ipairs({e.live, e.expired}) do
      for _, d in ipairs(list) do
        if not next_expiry or d[2] < next_expiry then
          next_expiry = d[2]
        end
      end
    end
    if #e.live + #e.expired == 0 then
      call('UNLINK', e.meta, e.days, e.identity)
      empty[e.epoch] = true
    end
  end
  local names = {}
  for _, epoch in ipairs(list_epochs(m)) do
    if not empty[epoch] then
      names[#names + 1] = epoch
    end
  end
  m.epochs, m.next = table.concat(names, ' '), next_expiry
end

-- Writes the mailbox row as m says.
local function write_mailbox(m)
  local row = {'retention_format_version', VERSION, 'epochs', m.epochs}
  local function add(name, value)
    row[#row + 1], row[#row + 2] = name, value
  end
  if m.trim ~= '' then
    add('user_trim_seq', m.trim)
  end
  if m.gap ~= '' then
    add('expired_gap_boundary', m.gap)
  end
  if m.through > 0 then
    add('expired_through', m.through)
  end
  if m.next then
    add('next_expiry', m.next)
  end
  call('HSET', m.key, unpack(row))
  if not m.next then
    call('HDEL', m.key, 'next_expiry')
  end
end
