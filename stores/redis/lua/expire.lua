-- Promotes the expired days of a mailbox that nobody writes to any more.
--
-- KEYS: mbmeta:{tenant}:{user}
-- ARGV: the client's time in ms, bytes of the key prefix
-- Returns 1 when there is more to forget: run it again, else 0.

local m = open_mailbox(KEYS[1], tonumber(ARGV[2]), clock(tonumber(ARGV[1])))
if not m.next or m.next > m.floor then
  return 0
end
local epochs = load_epochs(m)
merge_expired(m, epochs)
write_mailbox(m)
forget_expired(epochs)
sum_up(m, epochs)
write_mailbox(m)
return m.next and m.next <= m.floor and 1 or 0
