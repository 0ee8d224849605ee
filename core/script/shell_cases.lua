-- The bundle that shell_cases.txt is decided under.
local policy = require "bridle.policy"

return policy.bundle {
  api = 1,
  name = "shell-cases",
  rules = {
    policy.allow {
      id = "tools", action = "process.exec",
      command = {
        "ls", "ls *", "cat *", "echo", "echo *", "grep *", "wc *", "head *", "tail *", "pwd", "true", "make",
        "make *", "test *", "[ *", "cd src", "cd build",
        "mkdir *", "find *", "sort", "sort *", "npm test",
      },
    },
    policy.allow {
      id = "git", action = "process.exec",
      command = { "git log", "git log *", "git diff*", "git status" },
    },
    policy.allow { id = "go", action = "process.exec", command = policy.command { "go", { "test", "vet" } } },
    policy.allow { id = "scripts", action = "process.exec", command = { "./run.sh", "./run.sh *" } },
    policy.allow {
      id = "wrapper", action = "process.exec", command = { "timeout *", "env *", "xargs *", "sh *" },
    },
    policy.deny { id = "rm", action = "process.exec", command = "rm -rf *" },
    policy.deny { id = "push", action = "process.exec", command = { "git push", "git push *" } },
    policy.deny { id = "curl", action = "process.exec", command = { "curl", "curl *" } },
    policy.deny {
      id = "chmod", action = "process.exec",
      command = policy.command { "chmod", arguments = { "777", "/*" } },
    },
    policy.deny { id = "nice", action = "process.exec", command = "nice *" },
    policy.ask { id = "install", action = "process.exec", command = "npm install*" },
    policy.allow { id = "read", action = "fs.read" },
    policy.deny { id = "read-secret", action = "fs.read", path = { ".env", "secrets/**" } },
    policy.allow { id = "write", action = "fs.write", path = { "build/**", "out.txt", "src/**" } },
    policy.deny { id = "write-git", action = "fs.write", path = { ".git/**", "src/.git/**" } },
  },
}
