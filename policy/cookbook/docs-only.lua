-- When: the agent writes documentation, and nothing that runs.
-- Not: it does not read what is written; a page may hold a script. Commands that are not harmless are
-- denied, since one of them could write anything.

local policy = require "bridle.policy"

return policy.bundle {
  api = 1,
  name = "docs-only",
  extend = { "denials", "harmless" },
  rules = {
    policy.allow { id = "read", action = "fs.read" },
    policy.allow { id = "docs", action = "fs.write", path = { "docs/**", "*.md", "**/*.md", "**/*.rst" } },
    policy.check("docs-alone", function(request)
      if request.effect ~= "allow" then
        return "deny", "only docs/, *.md and *.rst are written, and only commands that read are run"
      end
    end),
  },
}
