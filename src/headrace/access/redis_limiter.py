"""The limits of `limits`, for all processes that share a Redis. Admitting and settling are one script each.

A key's state is one hash (its buckets and costs), and one sorted set of its requests in flight. A request's place in that
set is a lease: its score is when it runs out, and a stream that goes on has to renew it. So the slots of an instance that
crashed come back by themselves; what it had reserved of a budget stays charged, being the most it can have used.
The place is also the proof that a request has not been settled, so settling can be tried again.

Without Redis (down, or slower than its timeout) requests, tokens and streams are limited by each process alone. A key with
a budget is refused, as nobody knows what it has used, unless `on_down` is "fail_open": then each process keeps the budget
by itself. What happened meanwhile is kept, and brought to Redis when it is back. Trade-off: N processes without Redis admit
up to N times the limit.

The time is that of Redis, so that instances need not agree on it.
"""

from __future__ import annotations

import logging
import math
import secrets
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from headrace.access.keys import Key
from headrace.access.limits import (
    CALLS_EPSILON,
    COST_EPSILON,
    Grant,
    Levels,
    Limit,
    MemoryLimiter,
    Refusal,
    Unpriced,
    refusal,
    violated,
)
from headrace.access.redis_client import TIMEOUT, RedisClient, RedisDown
from headrace.model.errors import ErrorCode

logger = logging.getLogger("headrace.access")

LEASE = 60.0
"""Seconds a stream's slot is kept without being renewed."""

OnDown = Literal["fail_closed", "fail_open"]

_KEEP = 40 * 86400
"""Seconds a key's state is kept after its last request: longer than any month."""
_UNSETTLED = 86400
"""Seconds after its lease in which a request can still be settled."""
_RETRY = 2.0
"""Retry-After while the budgets' store cannot be reached."""
_MOST_PENDING = 10_000
_BATCH = 500

_UNLIMITED = -1

_COMMON = """
local state, leases = KEYS[1], KEYS[2]
local now = tonumber(ARGV[1])
if now < 0 then
  local time = redis.call('TIME')
  now = time[1] + time[2] / 1000000
end
local function periods()
  local day = math.floor(now / 86400)
  -- The civil calendar from a count of days, by eras of 400 years that begin in March.
  local z = day + 719468
  local era = math.floor(z / 146097)
  local doe = z - era * 146097
  local yoe = math.floor((doe - math.floor(doe / 1460) + math.floor(doe / 36524) - math.floor(doe / 146096)) / 365)
  local doy = doe - (365 * yoe + math.floor(yoe / 4) - math.floor(yoe / 100))
  local month = math.floor((5 * doy + 2) / 153) + 3
  return day, (yoe + era * 400) * 12 + month
end
local function refilled(level, limit, elapsed)
  if limit < 0 then return level or 0 end
  return math.min(limit, (level or limit) + elapsed * limit / 60)
end
local function text(number) return string.format('%.17g', number) end
local s = redis.call('HMGET', state, 'requests', 'tokens', 'at', 'day', 'day_cost', 'month', 'month_cost')
for i = 1, 7 do s[i] = tonumber(s[i] or nil) end
local function enter(day, month)
  if day > (s[4] or 0) then s[4], s[5] = day, 0 end
  if month > (s[6] or 0) then s[6], s[7] = month, 0 end
end
local function save()
  redis.call('HSET', state, 'requests', text(s[1]), 'tokens', text(s[2]), 'at', text(now),
    'day', text(s[4]), 'day_cost', text(s[5]), 'month', text(s[6]), 'month_cost', text(s[7]))
  redis.call('EXPIRE', state, {keep})
end
""".replace("{keep}", str(_KEEP))

_ADMIT = (
    _COMMON
    + """
local id, lease, unsettled = ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local tokens, cost, refuse_unpriced = tonumber(ARGV[5]), tonumber(ARGV[6]), ARGV[7] == '1'
local per_minute, tokens_per_minute, streams = tonumber(ARGV[8]), tonumber(ARGV[9]), tonumber(ARGV[10])
local per_day, per_month = tonumber(ARGV[11]), tonumber(ARGV[12])
local elapsed = math.max(0, now - (s[3] or now))
enter(periods())
s[1], s[2] = refilled(s[1], per_minute, elapsed), refilled(s[2], tokens_per_minute, elapsed)
redis.call('ZREMRANGEBYSCORE', leases, '-inf', '(' .. text(now - unsettled))
local active = redis.call('ZCOUNT', leases, '(' .. text(now), '+inf')
local function over(most, used) return most >= 0 and (used >= most or used + math.max(cost, 0) > most + {cost}) end
local verdict = ''
if cost < 0 and refuse_unpriced and (per_day >= 0 or per_month >= 0) then verdict = 'price'
elseif over(per_month, s[7]) then verdict = 'cost_per_month'
elseif over(per_day, s[5]) then verdict = 'cost_per_day'
elseif tokens_per_minute >= 0 and tokens > s[2] + {calls} then verdict = 'tokens_per_minute'
elseif per_minute >= 0 and s[1] < 1 - {calls} then verdict = 'requests_per_minute'
elseif streams >= 0 and active >= streams then verdict = 'concurrent_streams'
else
  if per_minute >= 0 then s[1] = s[1] - 1 end
  if tokens_per_minute >= 0 then s[2] = s[2] - tokens end
  s[5], s[7] = s[5] + math.max(cost, 0), s[7] + math.max(cost, 0)
  active = active + 1
  redis.call('ZADD', leases, text(now + lease), id)
  redis.call('EXPIRE', leases, math.ceil(lease + unsettled))
  save()
end
return {verdict, text(now), text(s[1]), text(s[2]), active, s[4], text(s[5]), s[6], text(s[7])}
"""
).replace("{calls}", repr(CALLS_EPSILON)).replace("{cost}", repr(COST_EPSILON))

_SETTLE = (
    _COMMON
    + """
local id, local_grant, unsettled = ARGV[2], ARGV[3] == '1', tonumber(ARGV[4])
local tokens, cost = tonumber(ARGV[5]), tonumber(ARGV[6])
local tokens_per_minute, day, month = tonumber(ARGV[7]), tonumber(ARGV[8]), tonumber(ARGV[9])
if local_grant then
  -- Never had a place: one that has run out takes no slot, and shows a second try that this one was made.
  if redis.call('ZADD', leases, 'NX', text(now), id) == 0 then return 0 end
  redis.call('EXPIRE', leases, math.ceil(unsettled))
elseif redis.call('ZREM', leases, id) == 0 then
  return 0
end
local elapsed = math.max(0, now - (s[3] or now))
enter(day, month)
s[1] = s[1] or 0
s[2] = refilled(refilled(s[2], tokens_per_minute, elapsed) - tokens, tokens_per_minute, 0)
if s[4] == day then s[5] = math.max(0, s[5] + cost) end
if s[6] == month then s[7] = math.max(0, s[7] + cost) end
save()
return 1
"""
)

_RENEW = """
local now = tonumber(ARGV[1])
if now < 0 then
  local time = redis.call('TIME')
  now = time[1] + time[2] / 1000000
end
local until_ = string.format('%.17g', now + tonumber(ARGV[2]))
for i = 1, #KEYS do
  if ARGV[3] == '1' then redis.call('ZREM', KEYS[i], ARGV[i + 3])
  else
    redis.call('ZADD', KEYS[i], until_, ARGV[i + 3])
    redis.call('EXPIRE', KEYS[i], math.ceil(tonumber(ARGV[2]) + {unsettled}))
  end
end
return #KEYS
""".replace("{unsettled}", str(_UNSETTLED))
