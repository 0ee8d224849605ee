local testing = require "bridle.testing"

describe("the bundle scoped", function()
  testing.cases(testing.load(), {
    { action = "fs.write", subject = "src/a.c", effect = "allow", rule = "write" },
    { action = "fs.write", subject = "README.md", effect = "allow", rule = "write" },
    { exec = "echo x > src/a.c", effect = "allow", rule = "write" },
    { action = "fs.write", subject = "app/.env", effect = "ask", rule = "write-environment" },
    { action = "fs.write", subject = ".envrc", effect = "ask", rule = "write-environment" },
    { action = "fs.write", subject = ".github/workflows/ci.yml", effect = "ask", rule = "write-automation" },
    { action = "fs.write", subject = "sub/HEAD", effect = "ask", rule = "write-repository" },
    { action = "fs.write", subject = ".gitattributes", effect = "ask", rule = "write-repository" },
    { action = "fs.write", subject = ".git/config", effect = "deny", rule = "no-git-internals" },
    { action = "fs.write", subject = "a.pem", effect = "deny", rule = "write-keys" },
    { action = "fs.read", subject = "a", effect = "allow", rule = "read" },
    { exec = "ls", effect = "allow", rule = "harmless" },
    { exec = "make test", effect = "ask", rule = "exec" },
    { exec = "touch src/a.c", effect = "ask", rule = "exec" },
  })
end)
