-- For a review: read, search, look at the history; nothing is written and nothing is run that could
-- write. There are no questions: what is not allowed is denied.

local policy = require "bridle.policy"

return policy.bundle {
  api = 1,
  name = "review-only",
  extend = { "denials", "harmless" },
  rules = {
    policy.allow { id = "read", action = "fs.read" },
    policy.deny {
      id = "read-environment", action = "fs.read",
      path = { ".env", ".env.*", "**/.env", "**/.env.*", ".npmrc", "**/.npmrc" },
      reason = "environment files often hold passwords",
    },
    policy.deny { id = "no-write", action = "fs.write",
      reason = "a review writes nothing; say what to change" },
    -- a rule that denies is stricter than one that allows, so that "all but the harmless" is no rule
    policy.check("nothing-is-asked", function(request)
      if request.effect ~= "allow" then
        return "deny", "a review reads; allowed are reading, searching, and commands such as ls, cat, grep, "
          .. "git log and git diff"
      end
    end),
  },
}
