local testing = require "bridle.testing"

describe("the recipe sed-lines", function()
  testing.cases(testing.load(), {
    { exec = { "sed", "-n", "1,200p", "src/a.c" }, effect = "allow", rule = "sed-prints" },
    { exec = { "sed", "-n", "5p", "src/a.c" }, effect = "allow", rule = "sed-prints" },
    { exec = { "sed", "-n", "w x", "src/a.c" }, effect = "ask", rule = "sed-script" },
    { exec = { "sed", "-n", "1e touch x", "src/a.c" }, effect = "ask", rule = "sed-script" },
    { exec = { "sed", "-n", "--in-pl", "1p", "a" }, effect = "ask", rule = "exec" },
    { exec = { "sed", "s/a/b/", "a" }, effect = "ask", rule = "exec" },
    { exec = { "ls" }, effect = "allow", rule = "harmless" },
    { action = "fs.read", subject = "sed", effect = "allow", rule = "read" },
  })
end)
