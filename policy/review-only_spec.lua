local testing = require "bridle.testing"

describe("the bundle review-only", function()
  testing.cases(testing.load(), {
    { action = "fs.read", subject = "src/a.c", effect = "allow", rule = "read" },
    { action = "fs.read", subject = ".env", effect = "deny", rule = "read-environment" },
    { action = "fs.write", subject = "src/a.c", effect = "deny", rule = "no-write" },
    { exec = "git log -p | head -n 100", effect = "allow", rule = "harmless" },
    { exec = "ls > list", effect = "deny", rule = "no-write" },
    { exec = "make test", effect = "deny", rule = "nothing-is-asked" },
    { exec = "git log --output=x", effect = "deny", rule = "nothing-is-asked" },
    { exec = "cat $X", effect = "deny", rule = "nothing-is-asked" },
    { exec = "cat id_rsa", effect = "deny", rule = "nothing-is-asked" },
    { action = "mcp.call", subject = "a/b", effect = "deny", rule = "nothing-is-asked" },
  })
end)
