local testing = require "bridle.testing"

describe("the recipe mine", function()
  testing.cases(testing.load(), {
    { action = "fs.read", subject = ".env.example", effect = "allow", rule = "read" },
    { action = "fs.read", subject = "app/.env", effect = "ask", rule = "read-environment" },
    { action = "fs.write", subject = "src/a.c", effect = "allow", rule = "write" },
    { action = "fs.write", subject = "lib/Makefile", effect = "ask", rule = "write-build" },
    { action = "fs.write", subject = "LICENSE", effect = "deny", rule = "no-license" },
    { action = "fs.write", subject = "src/key.pem", effect = "deny", rule = "write-keys" },
    { exec = "ls", effect = "allow", rule = "harmless" },
  })
end)
