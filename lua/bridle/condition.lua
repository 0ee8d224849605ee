--- Conditions of rules: what `when = { ... }` takes, checked and put into the form that
--- core/policy/condition.c tests.

local nearest = require "bridle.nearest"

local condition = {}

local KEYS = { "tool", "model", "env", "time", "budget" }
local TIME_KEYS = { "days", "from", "to", "zone" }
local COUNTERS = { "calls", "tokens", "asks" }
local LIMITS = { "used_over", "used_under", "left_over", "left_under" }
local DAYS = { "mon", "tue", "wed", "thu", "fri", "sat", "sun" }
local PATTERNS_MAX = 256

local function index(list, word)
  for i = 1, #list do
    if list[i] == word then return i end
  end
end

local function unknown_key(t, keys, what)
  for key in pairs(t) do
    if type(key) ~= "string" or not index(keys, key) then
      return ("'%s' is not a field of %s%s"):format(tostring(key), what, nearest.hint(tostring(key), keys))
    end
  end
end

--- A text or a list of texts that are patterns, as a list.
local function patterns(value)
  if type(value) == "string" then value = { value } end
  if type(value) ~= "table" or #value == 0 or #value > PATTERNS_MAX then return nil end
  local list = {}
  for i = 1, #value do
    local p = value[i]
    if type(p) ~= "string" or p == "" or #p > 1024 or not utf8.len(p) or p:find("%c") then return nil end
    list[i] = p
  end
  return list
end

--- Minutes of the day of "HH:MM", "24:00" included; nil if it is none.
local function minutes(text)
  if type(text) ~= "string" then return nil end
  local h, m = text:match("^(%d%d):(%d%d)$")
  if not h then return nil end
  h, m = tonumber(h), tonumber(m)
  if h > 24 or m > 59 or (h == 24 and m > 0) then return nil end
  return h * 60 + m
end

local function day_bits(value)
  if value == nil then return 127 end
  if type(value) == "string" then value = { value } end
  if type(value) ~= "table" or #value == 0 then return nil,
    "'days' is a day or a list of days, such as 'mon-fri'" end
  local bits = 0
  for i = 1, #value do
    local text = type(value[i]) == "string" and value[i] or "?"
    local first, last = text:match("^(%a+)%-(%a+)$")
    local from, to = index(DAYS, first or text), index(DAYS, last or text)
    if not from or not to then
      local odd = not from and (first or text) or last
      return nil, ("'%s' is not a day%s"):format(odd, nearest.hint(odd, DAYS))
    end
    local day = from
    while true do
      bits = bits | (1 << (day - 1))
      if day == to then break end
      day = day % 7 + 1
    end
  end
  return bits
end

--- The offset of a zone in minutes; false for local time; nil if it is none.
local function zone_of(value)
  if value == nil or value == "local" then return false end
  if value == "utc" then return 0 end
  if type(value) ~= "string" then return nil end
  local sign, h, m = value:match("^([+-])(%d%d):(%d%d)$")
  if not sign then return nil end
  local offset = tonumber(h) * 60 + tonumber(m)
  if offset > 840 or tonumber(m) > 59 then return nil end
  return sign == "-" and -offset or offset
end

local function make_time(value)
  if type(value) ~= "table" then
    return nil, "'time' is a table, such as { days = 'mon-fri', from = '09:00', to = '17:00' }"
  end
  local what = unknown_key(value, TIME_KEYS, "'time'")
  if what then return nil, what end
  local days
  days, what = day_bits(value.days)
  if what then return nil, what end
  if (value.from == nil) ~= (value.to == nil) then return nil, "'time' has 'from' and 'to', or neither" end
  if value.days == nil and value.from == nil then return nil, "'time' needs 'days', or 'from' and 'to'" end
  local from, to = minutes(value.from or "00:00"), minutes(value.to or "24:00")
  if not from or not to or from == 1440 or to == 0 then
    return nil, "'from' and 'to' are texts from '00:00' to '23:59', 'to' up to '24:00'"
  end
  if from == to then return nil, "'from' and 'to' are the same minute; leave both out for whole days" end
  local zone = zone_of(value.zone)
  if zone == nil then return nil, "'zone' is 'local', 'utc' or an offset such as '+02:00'" end
  return { days = days, from = from, to = to, zone = zone or nil }
end

local function make_budget(value)
  if type(value) ~= "table" then
    return nil, "'budget' is a table, such as { calls = { used_over = 50 } }"
  end
  local what = unknown_key(value, COUNTERS, "'budget'")
  if what then return nil, what end
  local out = {}
  for _, counter in ipairs(COUNTERS) do
    local limits = value[counter]
    if limits ~= nil then
      if type(limits) ~= "table" or next(limits) == nil then
        return nil, ("'budget.%s' is a table, such as { used_over = 50 }"):format(counter)
      end
      what = unknown_key(limits, LIMITS, ("'budget.%s'"):format(counter))
      if what then return nil, what end
      for _, name in ipairs(LIMITS) do
        local limit = limits[name]
        if limit ~= nil then
          if math.type(limit) ~= "integer" or limit < 0 then
            return nil, ("'budget.%s.%s' is a whole number that is not negative"):format(counter, name)
          end
          local kind, is = name:match("^(%a+)_(%a+)$")
          out[#out + 1] = { counter = counter, value = kind, is = is, limit = limit }
        end
      end
    end
  end
  if #out == 0 then return nil, "'budget' is empty" end
  return out
end

--- The data of a condition, or nil and why it is refused.
---@param when any
---@return table?, string?
function condition.make(when)
  if type(when) ~= "table" or next(when) == nil then
    return nil, "'when' is a table of conditions, such as { tool = 'fs_write' }"
  end
  local what = unknown_key(when, KEYS, "'when'")
  if what then return nil, what end
  local out = {}
  for _, key in ipairs { "tool", "model", "env" } do
    if when[key] ~= nil then
      out[key] = patterns(when[key])
      if not out[key] then return nil, ("'%s' of 'when' is a pattern or a list of patterns"):format(key) end
    end
  end
  if when.time ~= nil then
    out.time, what = make_time(when.time)
    if what then return nil, what end
  end
  if when.budget ~= nil then
    out.budget, what = make_budget(when.budget)
    if what then return nil, what end
  end
  return out
end

return condition
