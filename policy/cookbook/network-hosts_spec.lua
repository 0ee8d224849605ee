local testing = require "bridle.testing"

describe("the recipe network-hosts", function()
  testing.cases(testing.load(), {
    { action = "network", subject = "docs.example.org:443", effect = "deny", rule = "no-network" },
    { action = "network", subject = "169.254.169.254:80", effect = "deny", rule = "no-metadata" },
    { action = "fs.read", subject = "a", effect = "allow", rule = "read" },
    { action = "fs.write", subject = "a", effect = "ask", rule = "write" },
    { exec = "ls", effect = "ask", rule = "exec" },
  })
end)
