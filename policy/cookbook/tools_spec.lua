local testing = require "bridle.testing"

describe("the recipe tools", function()
  testing.cases(testing.load(), {
    { action = "fs.write", subject = "a", tool = "fs_edit", effect = "allow", rule = "edits" },
    { action = "fs.write", subject = "a", tool = "fs_write", effect = "ask", rule = "write" },
    { action = "fs.write", subject = "a.pem", tool = "fs_edit", effect = "deny", rule = "write-keys" },
    { action = "fs.read", subject = "home/x", tool = "fs_list", effect = "deny",
      rule = "no-listing-of-home" },
    { action = "fs.read", subject = "home/x", tool = "fs_read", effect = "allow", rule = "read" },
  })
end)
