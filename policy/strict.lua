-- For a workspace that matters, with somebody at the terminal: reading source is allowed, every write
-- and every command is asked about, the harmless ones as well, and what no answer should allow is
-- denied.

local policy = require "bridle.policy"

return policy.bundle {
  api = 1,
  name = "strict",
  extend = "denials",
  rules = {
    policy.allow { id = "read", action = "fs.read" },
    policy.deny {
      id = "environment-files", action = { "fs.read", "fs.write" },
      path = { ".env", ".env.*", "**/.env", "**/.env.*", ".npmrc", "**/.npmrc", ".envrc", "**/.envrc" },
      reason = "environment files often hold passwords",
    },
    policy.deny {
      id = "automation", action = "fs.write",
      path = { ".github/**", ".gitlab-ci.yml", ".circleci/**", "Jenkinsfile", "**/Jenkinsfile", ".husky/**" },
      reason = "what other machines run is changed by people",
    },
    policy.otherwise { id = "write", action = "fs.write" },
    policy.otherwise { id = "exec", action = "process.exec" },
    policy.group {
      action = "process.exec",
      policy.deny {
        id = "no-transfer",
        command = policy.command { { "curl", "wget", "nc", "ncat", "netcat", "socat", "ssh", "scp", "sftp",
          "rsync", "telnet", "ftp" } },
        reason = "nothing is fetched or sent",
      },
      policy.deny {
        id = "no-publish",
        command = {
          policy.command { { "npm", "pnpm", "yarn", "cargo", "poetry", "flit", "hatch" }, "publish" },
          policy.command { "twine", "upload" },
          policy.command { "gem", "push" },
          policy.command { { "docker", "podman" }, "push" },
        },
        reason = "delivery is the operator's step",
      },
      policy.deny {
        id = "no-rewrite",
        command = {
          policy.command { "git", { "rebase", "filter-branch", "filter-repo", "update-ref", "replace", "gc",
            "prune" } },
          policy.command { "git", "reset", flags = "--hard" },
          policy.command { "git", "commit", flags = "--amend" },
          policy.command { "git", "clean", flags = { { "-f", "--force" } } },
          policy.command { "git", "reflog", { "expire", "delete" } },
        },
        reason = "history and work that is not committed stay as they are",
      },
      policy.deny {
        id = "no-rm-recursive",
        command = policy.command { "rm", flags = { { "-r", "-R", "--recursive" } } },
        reason = "name the files",
      },
    },
  },
}
