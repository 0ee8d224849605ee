-- The profile must lie outside of the workspace: with this one in /p, run 'bridle policy test' from
-- another directory than /p or one above it.
local testing = require "bridle.testing"

describe("the recipe network-hosts", function()
  testing.cases(testing.load(nil, { profile = "profile/with-network.lua" }), {
    { action = "network", subject = "docs.example.org:443", effect = "allow", rule = "hosts" },
    { action = "network", subject = "a.mirror.example.org:443", effect = "allow", rule = "hosts" },
    { action = "network", subject = "docs.example.org:22", effect = "ask", rule = "network" },
    { action = "network", subject = "docs.example.org.evil.example:443", effect = "ask", rule = "network" },
    { action = "network", subject = "localhost:8080", effect = "deny", rule = "no-metadata" },
    { action = "network", subject = "169.254.169.254:80", effect = "deny", rule = "no-metadata" },
    { action = "fs.read", subject = "a", effect = "allow", rule = "read" },
    { action = "fs.write", subject = "a", effect = "ask", rule = "write" },
    { exec = "ls", effect = "ask", rule = "exec" },
  })

  testing.cases(testing.load(), {
    { "a profile without a network denies", action = "network", subject = "docs.example.org:443",
      effect = "deny", rule = "no-network" },
  })
end)
