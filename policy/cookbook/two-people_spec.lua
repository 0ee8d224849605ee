-- The manifest must lie outside of the workspace, or its allows do not count: with this one in /p, run
-- 'bridle policy test' from another directory than /p or one above it.
local testing = require "bridle.testing"

describe("the recipe two-people", function()
  testing.cases(testing.load(nil, { manifest = "task/reviewed.yaml" }), {
    { "both are asked", exec = { "./deploy", "staging" }, effect = "ask", rule = "second" },
    { exec = "./deploy staging", effect = "ask", rule = "second" },
    { "the reviewer has not agreed", exec = "make dist", effect = "deny", rule = "reviewed" },
    { "a word for one is none for the other", exec = "ls && ./deploy staging", effect = "deny",
      rule = "reviewed" },
    { exec = "./deploy staging > dist/log", effect = "deny", rule = "reviewed" },
    { "what the reviewer did not name", exec = "./deploy production", effect = "deny" },
    { exec = "ls src", effect = "allow", rule = "harmless" },
    { action = "fs.write", subject = "dist/a", effect = "allow", rule = "write" },
  })

  testing.cases(testing.load(), {
    { "nobody has reviewed it", exec = "./deploy staging", effect = "deny", rule = "reviewed" },
    { exec = "make", effect = "deny", rule = "reviewed" },
    { exec = "ls", effect = "allow", rule = "harmless" },
  })
end)
