local testing = require "bridle.testing"

describe("the recipe lock-files", function()
  testing.cases(testing.load(), {
    { action = "fs.write", subject = "src/a.js", effect = "allow", rule = "write" },
    { action = "fs.write", subject = "web/package.json", effect = "deny", rule = "no-dependency-files" },
    { action = "fs.write", subject = "requirements-dev.txt", effect = "deny", rule = "no-dependency-files" },
    { action = "fs.read", subject = "package.json", effect = "allow", rule = "read" },
    { exec = "npm install x", effect = "deny", rule = "no-dependency-commands" },
    { exec = "npm test", effect = "ask", rule = "exec" },
    { exec = "echo x >> go.mod", effect = "deny", rule = "no-dependency-files" },
    { exec = "sed -i s/1/2/ web/package.json", effect = "ask", rule = "tools-on-them" },
  })
end)
