-- When: the agent reviews a change: it reads and comments, and must see neither generated code nor
-- vendored copies.
-- Not: nothing is written, so that the review is what it says at the end.

local policy = require "bridle.policy"

return policy.bundle {
  api = 1,
  name = "review",
  extend = "review-only",
  rules = {
    policy.deny {
      id = "no-vendored", action = "fs.read",
      path = { "vendor/**", "third_party/**", "node_modules/**", "**/node_modules/**", "dist/**",
        "build/**" },
      reason = "it is not under review",
    },
  },
}
