-- The default without a question for each write: what the manifest's allowed_paths name is written,
-- and the sandbox refuses everything else. Commands that are not harmless are asked about as before.
-- Asked about stay the files by which a write becomes a command that somebody runs later.

local policy = require "bridle.policy"

return policy.bundle {
  api = 1,
  name = "scoped",
  extend = "default",
  replace = "write",
  rules = {
    policy.allow { id = "write", action = "fs.write", accept = "over-broad" },
    policy.ask {
      id = "write-environment", action = "fs.write",
      path = { ".env", ".env.*", "**/.env", "**/.env.*", ".npmrc", "**/.npmrc", ".envrc", "**/.envrc" },
      reason = "environment files decide what programs do, and often hold passwords",
    },
    policy.ask {
      id = "write-automation", action = "fs.write",
      path = { ".github/**", ".gitlab-ci.yml", ".circleci/**", "Jenkinsfile", "**/Jenkinsfile",
        ".vscode/**", ".idea/**", ".husky/**", ".pre-commit-config.yaml" },
      reason = "it runs on another machine, or when somebody opens the project",
    },
    policy.ask {
      id = "write-repository", action = "fs.write",
      path = { "HEAD", "**/HEAD", ".gitmodules", "**/.gitmodules", ".gitattributes", "**/.gitattributes" },
      reason = "it makes a directory a repository, or decides what git runs",
    },
  },
}
