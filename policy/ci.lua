-- For a run that nobody watches: there are no questions, what is not allowed is denied. Files are
-- read and, where the manifest's allowed_paths say so, written; harmless commands, builds and tests
-- of the usual kinds are run. Building and testing run what the workspace says: the sandbox holds
-- it, not this bundle.

local policy = require "bridle.policy"

return policy.bundle {
  api = 1,
  name = "ci",
  extend = { "denials", "harmless" },
  rules = {
    policy.allow { id = "read", action = "fs.read" },
    policy.allow { id = "write", action = "fs.write", accept = "over-broad" },
    policy.allow { id = "adapter", action = "adapter.run" },
    policy.deny {
      id = "environment-files", action = { "fs.read", "fs.write" },
      path = { ".env", ".env.*", "**/.env", "**/.env.*", ".npmrc", "**/.npmrc", ".envrc", "**/.envrc" },
      reason = "environment files often hold passwords",
    },
    policy.deny {
      id = "automation", action = "fs.write",
      path = { ".github/**", ".gitlab-ci.yml", ".circleci/**", "Jenkinsfile", "**/Jenkinsfile", ".husky/**",
        ".gitmodules", "**/.gitmodules", ".gitattributes", "**/.gitattributes", "HEAD", "**/HEAD" },
      reason = "what other machines run is changed by people",
    },
    policy.allow {
      id = "build-and-test", action = "process.exec",
      command = {
        policy.command { "make", { "all", "build", "check", "test", "tests", "lint" } },
        policy.command { { "npm", "pnpm", "yarn" }, "test" },
        policy.command { { "npm", "pnpm", "yarn" }, "run", { "test", "test:*", "build", "build:*", "lint",
          "lint:*", "check", "typecheck" } },
        policy.command { { "pytest", "tox", "ctest", "busted", "luacheck" } },
        policy.command { "cargo", { "build", "check", "clippy", "test" } },
        policy.command { "go", { "build", "test", "vet" }, without = { "-exec", "-toolexec", "-vettool",
          "-o" } },
        policy.command { "cmake", flags = "--build" },
      },
    },
    policy.check("nothing-is-asked", function(request)
      if request.effect ~= "allow" then
        return "deny", "nobody is there to ask; allowed are reading, writing in allowed_paths, harmless "
          .. "commands, builds and tests"
      end
    end),
  },
}
