local testing = require "bridle.testing"

describe("the recipe own-action", function()
  testing.cases(testing.load(), {
    { action = "deploy", subject = "preview-12", effect = "allow", rule = "deploy-preview" },
    { action = "deploy", subject = "staging", effect = "ask", rule = "deploy-staging" },
    { action = "deploy", subject = "production/eu", effect = "deny", rule = "deploy-production" },
    { action = "deploy", subject = "other", effect = "ask", rule = "default" },
    { exec = "make deploy", effect = "ask", rule = "exec" },
  })
end)
