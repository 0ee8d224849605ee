-- When: the agent may make commits and branches by itself, and delivery stays yours.
-- Not: pushing is denied by the default already, here also whatever changes where a push goes. A
-- commit runs the repository's hooks, inside the sandbox; '.git' must be writable there.

local policy = require "bridle.policy"

local elsewhere = { "-C", "--git-dir", "--work-tree" }

return policy.bundle {
  api = 1,
  name = "git-local",
  extend = "default",
  rules = {
    policy.group {
      action = "process.exec",
      policy.allow { id = "git-stage", command = policy.command { "git", { "add", "mv" },
        without = elsewhere } },
      policy.allow {
        id = "git-commit",
        command = policy.command { "git", "commit", flags = { { "-m", "--message", "-F", "--file" } },
          without = { "-C", "--git-dir", "--work-tree", "-e", "--edit", "-S", "--gpg-sign" } },
      },
      policy.allow { id = "git-branch", command = policy.command { "git", "switch", without = elsewhere } },
      policy.deny {
        id = "no-remotes",
        command = policy.command { "git", "remote", { "add", "set-url", "rename", "remove" } },
        reason = "where a push goes is the operator's",
      },
      policy.deny {
        id = "no-config", command = policy.command { "git", "config" },
        reason = "git's configuration names programs and addresses",
      },
    },
  },
}
