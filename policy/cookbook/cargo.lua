-- When: a Rust project; it is built and tested without a question, new crates are asked about.
-- Not: a build runs build.rs and procedural macros of every crate, inside the sandbox.

local policy = require "bridle.policy"

return policy.bundle {
  api = 1,
  name = "cargo",
  extend = "default",
  rules = {
    policy.group {
      action = "process.exec",
      policy.allow {
        id = "build-and-test",
        command = policy.command { "cargo", { "build", "check", "clippy", "test", "doc", "tree", "metadata" },
          without = { "--config", "-Z", "--target-dir", "--manifest-path", "--fix" } },
      },
      policy.ask {
        id = "crates", command = policy.command { "cargo", { "add", "remove", "update", "install", "fetch",
          "vendor" } },
        reason = "crates bring code that runs",
      },
      policy.deny {
        id = "no-publish", command = policy.command { "cargo", { "publish", "yank", "owner", "login" } },
        reason = "publishing is the operator's step",
      },
    },
  },
}
