local testing = require "bridle.testing"

describe("the recipe review", function()
  testing.cases(testing.load(), {
    { action = "fs.read", subject = "src/a.c", effect = "allow", rule = "read" },
    { action = "fs.read", subject = "web/node_modules/x/index.js", effect = "deny", rule = "no-vendored" },
    { action = "fs.write", subject = "src/a.c", effect = "deny", rule = "no-write" },
    { exec = "git diff main...HEAD", effect = "allow", rule = "harmless" },
    { exec = "make test", effect = "deny", rule = "nothing-is-asked" },
    { exec = "git log --output=x", effect = "deny", rule = "nothing-is-asked" },
  })
end)
