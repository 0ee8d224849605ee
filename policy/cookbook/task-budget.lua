-- When: a task should be short; beyond a number of calls somebody looks, beyond another it ends.
-- Not: it is no budget of money; budget.tokens of the manifest and of the configuration end a run by
-- themselves. What is used is not known in 'bridle policy why', where these rules count as matched.

local policy = require "bridle.policy"

return policy.bundle {
  api = 1,
  name = "task-budget",
  extend = "default",
  rules = {
    policy.group {
      action = { "fs.write", "process.exec" },
      policy.ask {
        id = "many-calls", when = { budget = { calls = { used_over = 50 } } },
        reason = "more than 50 calls were made for this task",
      },
      policy.deny {
        id = "too-many-calls", when = { budget = { calls = { used_over = 200 } } },
        reason = "more than 200 calls were made for this task; report what there is",
      },
      policy.deny {
        id = "tired-people", when = { budget = { asks = { used_over = 30 } } },
        reason = "30 questions were asked for this task; report what there is",
      },
    },
  },
}
