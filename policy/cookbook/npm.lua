-- When: a JavaScript project; the scripts that you name run without a question, installing is asked.
-- Not: a script runs what package.json says, and the agent may have changed that (see lock-files to
-- freeze it); an install runs the scripts of packages unless --ignore-scripts is given.

local policy = require "bridle.policy"

local managers = { "npm", "pnpm", "yarn" }

return policy.bundle {
  api = 1,
  name = "npm",
  extend = "default",
  rules = {
    policy.group {
      action = "process.exec",
      policy.allow {
        id = "scripts",
        command = { policy.command { managers, "test" },
          policy.command { managers, "run", { "test", "test:*", "lint", "build", "typecheck" } } },
      },
      policy.allow { id = "npm-reads", command = policy.command { managers, { "ls", "outdated", "why" } } },
      policy.ask {
        id = "install",
        command = policy.command { managers, { "install", "i", "ci", "add", "update", "upgrade", "remove",
          "uninstall", "dedupe" } },
        reason = "packages bring code that runs",
      },
      policy.ask {
        id = "fetch-and-run",
        command = { policy.command { { "npx", "bunx" } },
          policy.command { managers, { "exec", "dlx", "create", "init" } } },
        reason = "it may fetch a package and run it",
      },
      policy.deny {
        id = "no-publish",
        command = policy.command { managers, { "publish", "unpublish", "deprecate", "dist-tag", "owner",
          "token", "login", "adduser" } },
        reason = "publishing is the operator's step",
      },
    },
  },
}
