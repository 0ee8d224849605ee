-- When: writes and commands are for hours in which somebody could look.
-- Not: it decides when a call begins; what runs then goes on. The clock is the machine's; where the
-- time is not known, the rule denies.

local policy = require "bridle.policy"

return policy.bundle {
  api = 1,
  name = "office-hours",
  extend = "default",
  rules = {
    policy.group {
      action = { "fs.write", "process.exec" },
      reason = "writes and commands are for Monday to Friday, 09:00 to 17:00",
      policy.deny { id = "no-nights", when = { time = { from = "17:00", to = "09:00" } } },
      policy.deny { id = "no-weekends", when = { time = { days = "sat-sun" } } },
    },
  },
}
