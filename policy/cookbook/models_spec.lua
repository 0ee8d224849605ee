local testing = require "bridle.testing"

describe("the recipe models", function()
  testing.cases(testing.load(), {
    { action = "fs.write", subject = "src/a", model = "trusted/one", effect = "allow",
      rule = "trusted-writes" },
    { action = "fs.write", subject = "other/a", model = "trusted/one", effect = "ask", rule = "write" },
    { action = "fs.write", subject = "src/a", model = "other/one", effect = "ask", rule = "write" },
    { action = "fs.write", subject = "src/a", model = "small/one", effect = "deny",
      rule = "small-models-read" },
    { exec = "ls", model = "small/one", effect = "deny", rule = "small-models-read" },
    { exec = "ls", model = "other/one", effect = "allow", rule = "harmless" },
  })
end)
