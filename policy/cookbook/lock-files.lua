-- When: dependencies are changed by people.
-- Not: a program that the agent may run can still write these files; install commands are denied here,
-- others are asked about by the default.

local policy = require "bridle.policy"

local names = { "package.json", "package-lock.json", "pnpm-lock.yaml", "yarn.lock", "Cargo.toml",
  "Cargo.lock", "go.mod", "go.sum", "requirements*.txt", "pyproject.toml", "poetry.lock", "uv.lock",
  "Gemfile", "Gemfile.lock", "composer.json", "composer.lock" }
local paths, words = {}, {}
for _, name in ipairs(names) do
  paths[#paths + 1] = name
  paths[#paths + 1] = "**/" .. name
  words[#words + 1] = name
  words[#words + 1] = "*/" .. name
end

return policy.bundle {
  api = 1,
  name = "lock-files",
  extend = "default",
  rules = {
    policy.deny {
      id = "no-dependency-files", action = "fs.write", path = paths,
      reason = "dependencies are changed by people; say which one is needed",
    },
    policy.group {
      action = "process.exec",
      reason = "dependencies are changed by people; say which one is needed",
      policy.deny {
        id = "no-dependency-commands",
        command = {
          policy.command { { "npm", "pnpm", "yarn", "bun" }, { "install", "i", "add", "update", "upgrade",
            "remove", "uninstall" } },
          policy.command { { "pip", "pip3", "uv", "poetry" }, { "install", "add", "update", "remove",
            "lock" } },
          policy.command { "cargo", { "add", "remove", "update" } },
          policy.command { "go", { "get", "mod" } },
          policy.command { { "bundle", "composer" }, { "add", "update", "require", "remove" } },
        },
      },
      policy.ask {
        id = "tools-on-them",
        command = policy.command { { "sed", "tee", "cp", "mv", "rm", "truncate", "patch" },
          arguments = words },
      },
    },
  },
}
