-- Run with: lua5.4 test.lua
package.path = "./src/?.lua;" .. package.path
local duration = require("duration")

local failed = 0
local count = 0

local function check(name, got, expected)
  count = count + 1
  if got == expected then
    print(("ok %d - %s"):format(count, name))
  else
    failed = failed + 1
    print(("not ok %d - %s: got '%s', expected '%s'"):format(count, name, got, expected))
  end
end

check("seconds", duration.format(5), "5s")
check("minutes", duration.format(125), "2m 05s")
check("hours", duration.format(3725), "1h 02m 05s")
check("parse", duration.parse("1h 2m 5s"), 3725)
check("round trip", duration.parse(duration.format(754)), 754)
check("unknown unit", select(2, duration.parse("3x")), "unknown unit 'x'")

print(("%d tests, %d failed"):format(count, failed))
os.exit(failed == 0)
