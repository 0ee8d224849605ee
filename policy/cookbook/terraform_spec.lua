local testing = require "bridle.testing"

describe("the recipe terraform", function()
  testing.cases(testing.load(), {
    { exec = "terraform plan", effect = "allow", rule = "plan" },
    { exec = "terraform -chdir=infra validate", effect = "allow", rule = "plan" },
    { exec = "terraform plan -out=x", effect = "ask", rule = "exec" },
    { exec = "terraform fmt -check", effect = "allow", rule = "plan" },
    { exec = "terraform fmt", effect = "ask", rule = "exec" },
    { exec = "terraform apply -auto-approve", effect = "deny", rule = "no-apply" },
    { exec = "terraform -chdir=infra destroy", effect = "deny", rule = "no-apply" },
    { exec = "tofu state rm x", effect = "deny", rule = "no-apply" },
    { exec = "terraform state pull", effect = "deny", rule = "no-state" },
  })
end)
