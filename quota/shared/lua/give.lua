-- Gives back what a charge took from a bucket, that is: the bucket is full
-- earlier. A bucket that is full then is removed.
--
-- KEYS[1]: the bucket, as redis_rate keeps it: when it is full again, in seconds
--          since 2017-01-01
-- ARGV[1]: seconds to give back

local full = redis.call('GET', KEYS[1])
if not full then
  return 0
end
local time = redis.call('TIME')
local now = (time[1] - 1483228800) + time[2] / 1000000
full = tonumber(full) - tonumber(ARGV[1])
if full > now then
  redis.call('SET', KEYS[1], full, 'EX', math.ceil(full - now))
else
  redis.call('DEL', KEYS[1])
end
return 1
