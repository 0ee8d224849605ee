-- When: small edits are fine, whole files are looked at: fs_edit writes without a question, fs_write
-- asks.
-- Not: a redirection of a command is a write too, and has the tool process_exec: it is asked about.

local policy = require "bridle.policy"

return policy.bundle {
  api = 1,
  name = "tools",
  extend = "default",
  replace = "write",
  rules = {
    policy.otherwise { id = "write", action = "fs.write" },
    policy.allow { id = "edits", action = "fs.write", when = { tool = "fs_edit" } },
    policy.deny {
      id = "no-listing-of-home", action = "fs.read", path = { "home/**" }, when = { tool = { "fs_list",
        "fs_search" } },
      reason = "read the file that you mean",
    },
  },
}
