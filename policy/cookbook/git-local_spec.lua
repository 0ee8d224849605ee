local testing = require "bridle.testing"

describe("the recipe git-local", function()
  testing.cases(testing.load(), {
    { exec = "git add -A", effect = "allow", rule = "git-stage" },
    { exec = "git commit -m 'fix it'", effect = "allow", rule = "git-commit" },
    { exec = "git switch -c fix", effect = "allow", rule = "git-branch" },
    { exec = "git commit", effect = "ask", rule = "exec" },
    { exec = "git -C other add x", effect = "ask", rule = "exec" },
    { exec = "git add -A && git push", effect = "deny", rule = "no-push" },
    { exec = "git remote add x https://example.org/x", effect = "deny", rule = "no-remotes" },
    { exec = "git remote -v", effect = "allow", rule = "harmless" },
    { exec = "git config core.pager x", effect = "deny", rule = "no-config" },
  })
end)
