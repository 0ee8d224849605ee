-- When: the project has files with secrets under names of its own.
-- Not: a command is asked about, not denied, since a word such as $f may be any file. A search of a
-- directory shows lines of every file in it, and a program of the workspace reads what it likes: what
-- must stay secret belongs outside of the workspace.

local policy = require "bridle.policy"

return policy.bundle {
  api = 1,
  name = "secrets",
  extend = "default",
  rules = {
    policy.deny {
      id = "no-secrets", action = { "fs.read", "fs.write" },
      path = { "secrets/**", "**/secrets/**", "*.tfstate", "**/*.tfstate", "*.tfvars", "**/*.tfvars",
        "*.kdbx", "**/*.kdbx", "**/credentials.json", "credentials.json", "**/service-account*.json", ".env",
        "**/.env" },
      reason = "it holds secrets; say what you need from it",
    },
    policy.ask {
      id = "secrets-in-commands", action = "process.exec",
      command = policy.command { "*", arguments = { "secrets", "secrets/*", "*/secrets/*", "*.tfstate",
        "*.tfvars", "*.kdbx", "*credentials.json", "*service-account*.json", ".env", "*/.env" } },
      reason = "it holds secrets; say what you need from it",
    },
  },
}
