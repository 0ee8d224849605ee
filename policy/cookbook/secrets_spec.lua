local testing = require "bridle.testing"

describe("the recipe secrets", function()
  testing.cases(testing.load(), {
    { action = "fs.read", subject = "app/secrets/db.yaml", effect = "deny", rule = "no-secrets" },
    { action = "fs.read", subject = ".env", effect = "deny", rule = "no-secrets" },
    { action = "fs.read", subject = ".env.example", effect = "ask", rule = "read-environment" },
    { action = "fs.write", subject = "infra/prod.tfvars", effect = "deny", rule = "no-secrets" },
    { exec = "cat ./secrets/db.yaml", effect = "ask", rule = "secrets-in-commands" },
    { exec = "install .env /tmp/x", effect = "ask", rule = "secrets-in-commands" },
    { exec = "cat src/secrets.c", effect = "allow", rule = "harmless" },
    { action = "fs.read", subject = "src/secrets.c", effect = "allow", rule = "read" },
  })
end)
