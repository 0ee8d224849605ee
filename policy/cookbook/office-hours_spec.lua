local testing = require "bridle.testing"

describe("the recipe office-hours", function()
  testing.cases(testing.load(), {
    { action = "fs.write", subject = "a", at = "2026-12-01 10:00", effect = "allow", rule = "write" },
    { action = "fs.write", subject = "a", at = "2026-12-01 17:00", effect = "deny", rule = "no-nights" },
    { action = "fs.write", subject = "a", at = "2026-12-01 08:59", effect = "deny", rule = "no-nights" },
    { exec = "ls", at = "2026-12-05 12:00", effect = "deny", rule = "no-weekends" },
    { exec = "ls", at = "2026-12-04 16:59", effect = "allow", rule = "harmless" },
    { action = "fs.read", subject = "a", at = "2026-12-05 03:00", effect = "allow", rule = "read" },
  })
end)
