-- When: a model that you trust less is asked about more: here only one family writes without a
-- question.
-- Not: the name is what the configuration says, no proof of who answered.

local policy = require "bridle.policy"

return policy.bundle {
  api = 1,
  name = "models",
  extend = "default",
  replace = "write",
  rules = {
    policy.otherwise { id = "write", action = "fs.write" },
    policy.allow {
      id = "trusted-writes", action = "fs.write", path = { "src/**", "tests/**" },
      when = { model = "trusted/*" },
    },
    policy.deny {
      id = "small-models-read", action = { "fs.write", "process.exec" }, when = { model = "small/*" },
      reason = "this model reads and reports",
    },
  },
}
