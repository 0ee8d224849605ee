-- Durations in seconds, as text for people and back.
local duration = {}

local units = { h = 3600, m = 60, s = 1 }

--- "1h 02m 05s"; hours are left out when there are none, minutes when both are missing.
function duration.format(seconds)
  local hours = seconds // 3600
  local minutes = seconds // 60
  local rest = seconds % 60
  if hours > 0 then
    return string.format("%dh %02dm %02ds", hours, minutes, rest)
  elseif minutes > 0 then
    return string.format("%dm %02ds", minutes, rest)
  end
  return string.format("%ds", rest)
end

--- The seconds of a text like "1h 2m 5s", or nil and a message.
function duration.parse(text)
  local total = 0
  for amount, unit in text:gmatch("(%d+)(%a)") do
    if not units[unit] then
      return nil, "unknown unit '" .. unit .. "'"
    end
    total = total + math.tointeger(amount) * units[unit]
  end
  return total
end

return duration
