-- When: the agent may commit, and what was committed stays as it was.
-- Not: it cannot tell whose commit is amended, so that all amending is denied; a file that is removed
-- under .git by a program of the workspace is not git's doing.

local policy = require "bridle.policy"

return policy.bundle {
  api = 1,
  name = "git-no-rewrite",
  extend = "default",
  rules = {
    policy.group {
      action = "process.exec",
      reason = "history and work that is not committed stay as they are",
      policy.deny { id = "no-amend", command = policy.command { "git", "commit", flags = "--amend" } },
      policy.deny {
        id = "no-rewrite",
        command = policy.command { "git", { "rebase", "filter-branch", "filter-repo", "replace", "update-ref",
          "gc", "prune" } },
      },
      policy.deny { id = "no-hard-reset", command = policy.command { "git", "reset", flags = "--hard" } },
      policy.deny {
        id = "no-branch-removal",
        command = policy.command { "git", "branch", flags = { { "-D", "-d", "--delete", "-f", "--force",
          "-M" } } },
      },
      policy.deny { id = "no-reflog-loss", command = policy.command { "git", "reflog", { "expire",
        "delete" } } },
      policy.deny { id = "no-clean", command = policy.command { "git", "clean", flags = { { "-f",
        "--force" } } } },
    },
  },
}
