-- When: a program around Bridle asks about steps of its own, such as a deployment.
-- Not: no part of this version asks about such an action by itself; a manifest may name it, and
-- 'bridle policy why deploy staging' decides it.

local policy = require "bridle.policy"

return policy.bundle {
  api = 1,
  name = "own-action",
  extend = "default",
  actions = { "deploy" },
  rules = {
    policy.allow { id = "deploy-preview", action = "deploy", text = "preview-*", accept = "unasked-action" },
    policy.ask { id = "deploy-staging", action = "deploy", text = "staging", accept = "unasked-action" },
    policy.deny {
      id = "deploy-production", action = "deploy", text = { "production", "production/*" },
      reason = "production is deployed by people", accept = "unasked-action",
    },
  },
}
