"""What `redis_limiter` runs in Redis: the rules of `limits`, in Lua. Each script is atomic and one round trip.

KEYS: the key's state (a hash), its requests in flight (a sorted set). ARGV[1]: Unix time, or -1 for that of Redis.
A limit that does not exist is -1, a cost that is not known too. Numbers come back as text: Redis cuts Lua's to integers.
"""

from __future__ import annotations

from headrace.access.limits import CALLS_EPSILON, COST_EPSILON

_STATE_SECONDS = 40 * 86400
"""How long a key's state is kept after its last request: longer than any month."""

UNSETTLED_SECONDS = 86400
"""How long after its lease a request can still be settled."""

_TIME = """
local now = tonumber(ARGV[1])
if now < 0 then
  local time = redis.call('TIME')
  now = time[1] + time[2] / 1000000
end
local function text(number) return string.format('%.17g', number) end
"""

# ARGV[2]: the request's id; [3], [4]: requests and tokens a minute. Loads the state as of now.
_STATE = f"""{_TIME}
local state, leases = KEYS[1], KEYS[2]
local id, requests_per_minute, tokens_per_minute = ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])

local names = {{'requests', 'tokens', 'at', 'day', 'day_cost', 'month', 'month_cost'}}
local s = {{}}
for i, value in ipairs(redis.call('HMGET', state, unpack(names))) do s[names[i]] = tonumber(value or nil) end

local elapsed = math.max(0, now - (s.at or now))
local function refilled(level, limit, seconds)
  if limit < 0 then return math.huge end
  return math.min(limit, (level or limit) + seconds * limit / 60)
end
s.at = now
s.requests = refilled(s.requests, requests_per_minute, elapsed)
s.tokens = refilled(s.tokens, tokens_per_minute, elapsed)

-- The civil calendar from a count of days, by eras of 400 years; years begin in March.
local day = math.floor(now / 86400)
local z = day + 719468
local era = math.floor(z / 146097)
local doe = z - era * 146097
local yoe = math.floor((doe - math.floor(doe / 1460) + math.floor(doe / 36524) - math.floor(doe / 146096)) / 365)
local doy = doe - (365 * yoe + math.floor(yoe / 4) - math.floor(yoe / 100))
local month = (yoe + era * 400) * 12 + math.floor((5 * doy + 2) / 153) + 3
if day > (s.day or 0) then s.day, s.day_cost = day, 0 end
if month > (s.month or 0) then s.month, s.month_cost = month, 0 end

local function save()
  local fields = {{}}
  for _, name in ipairs(names) do
    fields[#fields + 1] = name
    fields[#fields + 1] = text(s[name])
  end
  redis.call('HSET', state, unpack(fields))
  redis.call('EXPIRE', state, {_STATE_SECONDS})
end
"""

# Answers the limit that forbids the request ('': admitted), the time, and the levels after it.
ADMIT = f"""{_STATE}
local streams, per_day, per_month = tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])
local tokens, cost, lease, refuse_unpriced = tonumber(ARGV[8]), tonumber(ARGV[9]), tonumber(ARGV[10]), ARGV[11] == '1'
local reserved = math.max(0, cost)
redis.call('ZREMRANGEBYSCORE', leases, '-inf', '(' .. text(now - {UNSETTLED_SECONDS}))
local active = redis.call('ZCOUNT', leases, '(' .. text(now), '+inf')
local function over(most, used)
  return most >= 0 and (used >= most or used + reserved > most + {COST_EPSILON!r})
end

local verdict = ''
if cost < 0 and refuse_unpriced and (per_day >= 0 or per_month >= 0) then verdict = 'price'
elseif over(per_month, s.month_cost) then verdict = 'cost_per_month'
elseif over(per_day, s.day_cost) then verdict = 'cost_per_day'
elseif tokens > s.tokens + {CALLS_EPSILON!r} then verdict = 'tokens_per_minute'
elseif s.requests < 1 - {CALLS_EPSILON!r} then verdict = 'requests_per_minute'
elseif streams >= 0 and active >= streams then verdict = 'concurrent_streams'
else
  s.requests, s.tokens, active = s.requests - 1, s.tokens - tokens, active + 1
  s.day_cost, s.month_cost = s.day_cost + reserved, s.month_cost + reserved
  redis.call('ZADD', leases, text(now + lease), id)
  redis.call('EXPIRE', leases, math.ceil(lease) + {UNSETTLED_SECONDS})
end
save()
return {{verdict, text(now), text(s.requests), text(s.tokens), active,
  s.day, text(s.day_cost), s.month, text(s.month_cost)}}
"""

# ARGV[5], [6]: tokens and cost to add (below 0 to give back); [7], [8]: the day and month they belong to; [9]: '1' where
# the request was admitted without Redis. Answers 0 where it had been settled before.
SETTLE = f"""{_STATE}
local tokens, cost = tonumber(ARGV[5]), tonumber(ARGV[6])
if ARGV[9] == '1' then
  -- It has no place to give up. One that has run out takes no slot, and tells a second try that this one was made.
  if redis.call('ZADD', leases, 'NX', text(now), id) == 0 then return 0 end
  redis.call('EXPIRE', leases, {2 * UNSETTLED_SECONDS})
elseif redis.call('ZREM', leases, id) == 0 then
  return 0
end
s.tokens = refilled(s.tokens - tokens, tokens_per_minute, 0)
if s.day == tonumber(ARGV[7]) then s.day_cost = math.max(0, s.day_cost + cost) end
if s.month == tonumber(ARGV[8]) then s.month_cost = math.max(0, s.month_cost + cost) end
save()
return 1
"""

# KEYS: sorted sets, one for each id of ARGV[3...]. ARGV[2]: seconds. A request that has been settled stays so (XX).
RENEW = f"""{_TIME}
local lease = tonumber(ARGV[2])
for i, leases in ipairs(KEYS) do
  redis.call('ZADD', leases, 'XX', text(now + lease), ARGV[i + 2])
  redis.call('EXPIRE', leases, math.ceil(lease) + {UNSETTLED_SECONDS})
end
return #KEYS
"""

SCRIPTS = {"admit": ADMIT, "settle": SETTLE, "renew": RENEW}
