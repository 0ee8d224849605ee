-- When: the agent should run the tests as often as it likes.
-- Not: a test is code of the workspace, which the agent may have written a moment ago: this trusts
-- the sandbox, not the test. Remove the lines that your project does not use.

local policy = require "bridle.policy"

return policy.bundle {
  api = 1,
  name = "test-runners",
  extend = "default",
  rules = {
    policy.allow {
      id = "tests", action = "process.exec",
      command = {
        policy.command { "make", { "test", "tests", "check" } },
        policy.command { { "npm", "pnpm", "yarn" }, "test" },
        policy.command { { "pytest", "tox", "ctest", "busted", "rspec", "phpunit" } },
        policy.command { "cargo", "test" },
        policy.command { "go", { "test", "vet" }, without = { "-exec", "-toolexec", "-vettool", "-o" } },
        policy.command { { "mvn", "gradle", "./gradlew", "./mvnw" }, "test" },
      },
    },
  },
}
