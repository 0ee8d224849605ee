-- When: a profile whose sandbox has a network; these hosts are reached, nothing else.
-- Not: the profiles that come with this version have no network at all, and deny whatever this
-- allows. It extends no shipped bundle, since those deny the network; its other rules are few.

local policy = require "bridle.policy"

return policy.bundle {
  api = 1,
  name = "network-hosts",
  rules = {
    policy.allow { id = "read", action = "fs.read" },
    policy.otherwise { id = "write", action = "fs.write" },
    policy.otherwise { id = "exec", action = "process.exec" },
    policy.allow {
      id = "hosts", action = "network", host = { "docs.example.org:443", "*.mirror.example.org:443" },
      accept = "unrepresentable",
    },
    policy.deny {
      id = "no-metadata", action = "network", host = { "169.254.*", "127.*", "10.*", "192.168.*",
        "localhost" },
      reason = "machines of the inside are not reached",
    },
    policy.otherwise { id = "network", action = "network" },
  },
}
