local testing = require "bridle.testing"

describe("the bundle ci", function()
  testing.cases(testing.load(), {
    { action = "fs.read", subject = "src/a.c", effect = "allow", rule = "read" },
    { action = "fs.write", subject = "src/a.c", effect = "allow", rule = "write" },
    { action = "fs.read", subject = ".env", effect = "deny", rule = "environment-files" },
    { action = "fs.write", subject = ".github/workflows/ci.yml", effect = "deny", rule = "automation" },
    { action = "fs.write", subject = "sub/HEAD", effect = "deny", rule = "automation" },
    { action = "fs.write", subject = "a.pem", effect = "deny", rule = "write-keys" },
    { action = "adapter.run", subject = "pi-coding@1", effect = "allow", rule = "adapter" },
    { exec = "ls", effect = "allow", rule = "harmless" },
    { exec = "make test", effect = "allow", rule = "build-and-test" },
    { exec = "npm run test:unit", effect = "allow", rule = "build-and-test" },
    { exec = "go test -exec=./x ./...", effect = "deny", rule = "nothing-is-asked" },
    { exec = "make test && git commit -m x", effect = "deny", rule = "nothing-is-asked" },
    { exec = "npm install x", effect = "deny", rule = "nothing-is-asked" },
    { exec = "git push", effect = "deny", rule = "no-push" },
  })
end)
