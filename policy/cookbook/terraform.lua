-- When: plans are made by the agent, and applied by people.
-- Not: a plan is no dry run: providers and 'external' data sources are programs that run, inside the
-- sandbox, and a plan reads the state, which holds secrets.

local policy = require "bridle.policy"

local terraform = { "terraform", "tofu" }

return policy.bundle {
  api = 1,
  name = "terraform",
  extend = "default",
  rules = {
    policy.group {
      action = "process.exec",
      policy.allow {
        id = "plan", command = { policy.command { terraform, { "plan", "validate", "version" },
          without = "-out" },
          policy.command { terraform, "fmt", flags = "-check" } },
      },
      policy.deny {
        id = "no-apply",
        command = {
          policy.command { terraform, { "apply", "destroy", "import", "taint", "untaint", "force-unlock",
            "refresh" } },
          policy.command { terraform, "state", { "rm", "mv", "push", "replace-provider" } },
          policy.command { terraform, "workspace", { "new", "delete" } },
        },
        reason = "a plan is applied by people",
      },
      policy.deny {
        id = "no-state", command = policy.command { terraform, { "state", "output" }, { "pull", "show",
          "*" } },
        reason = "the state holds secrets",
      },
    },
  },
}
