local testing = require "bridle.testing"

describe("the recipe task-budget", function()
  testing.cases(testing.load(), {
    { exec = "ls", budget = { calls = 50, asks = 0 }, effect = "allow", rule = "harmless" },
    { exec = "ls", budget = { calls = 51, asks = 0 }, effect = "ask", rule = "many-calls" },
    { exec = "ls", budget = { calls = 201, asks = 0 }, effect = "deny", rule = "too-many-calls" },
    { action = "fs.write", subject = "a", budget = { calls = 1, asks = 31 }, effect = "deny",
      rule = "tired-people" },
    { action = "fs.read", subject = "a", budget = { calls = 500, asks = 500 }, effect = "allow",
      rule = "read" },
  })
end)
