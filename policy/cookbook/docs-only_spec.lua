local testing = require "bridle.testing"

describe("the recipe docs-only", function()
  testing.cases(testing.load(), {
    { action = "fs.write", subject = "docs/a.html", effect = "allow", rule = "docs" },
    { action = "fs.write", subject = "src/README.md", effect = "allow", rule = "docs" },
    { action = "fs.write", subject = "src/a.c", effect = "deny", rule = "docs-alone" },
    { action = "fs.read", subject = "src/a.c", effect = "allow", rule = "read" },
    { exec = "ls docs", effect = "allow", rule = "harmless" },
    { exec = "ls > docs/list.md", effect = "allow", rule = "docs" },
    { exec = "ls > list.txt", effect = "deny", rule = "docs-alone" },
    { exec = "sed -i s/a/b/ docs/a.md", effect = "deny", rule = "docs-alone" },
  })
end)
