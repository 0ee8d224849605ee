-- policy/default.lua as it was before writes in scope were allowed: what the counts "before" of
-- docs/asks.md are made with. No run uses it.
local policy = require "bridle.policy"

local environment = { ".env", ".env.*", "**/.env", "**/.env.*", ".npmrc", "**/.npmrc" }

return policy.bundle {
  api = 1,
  name = "default",
  extend = { "denials", "harmless" },
  rules = {
    -- Reading, listing and searching.
    policy.allow { id = "read", action = "fs.read" },
    policy.ask {
      id = "read-environment", action = "fs.read", path = environment,
      reason = "environment files often hold passwords",
    },

    -- Writing. The sandbox refuses whatever the manifest's allowed_paths do not name.
    policy.otherwise { id = "write", action = "fs.write" },

    -- Commands run inside the sandbox: no network, no credentials. What is not harmless is asked about.
    policy.otherwise { id = "exec", action = "process.exec" },
  },
}
