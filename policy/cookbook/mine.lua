-- When: the default is nearly right: this keeps it, replaces one rule and adds two. Start here.
-- Not: a rule that denies cannot be replaced; to leave one out, copy policy/denials.lua too.

local policy = require "bridle.policy"

return policy.bundle {
  api = 1,
  name = "mine",
  extend = "default",
  replace = "read-environment",
  rules = {
    policy.ask { -- the default's, but for .env.example and the like
      id = "read-environment", action = "fs.read", path = { ".env", "**/.env", ".env.local",
        "**/.env.local" },
      reason = "environment files often hold passwords",
    },
    policy.ask {
      id = "write-build", action = "fs.write", path = { "Makefile", "**/Makefile" },
      reason = "what is built, and how, is looked at",
    },
    policy.deny {
      id = "no-license", action = "fs.write", path = { "LICENSE", "NOTICE" },
      reason = "the licence is changed by people",
    },
  },
}
