-- Reads a user's boundaries as they are now: the gap counts what Redis has
-- dropped or will drop without anybody having written it down yet.
--
-- KEYS: mbmeta:{tenant}:{user}
-- ARGV: the client's time in ms, bytes of the key prefix
-- Returns user_trim_seq and the gap boundary, empty for none.

local m = open_mailbox(KEYS[1], tonumber(ARGV[2]), clock(tonumber(ARGV[1])))
merge_expired(m, load_epochs(m))
return {m.trim, m.gap}
