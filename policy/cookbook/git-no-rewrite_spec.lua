local testing = require "bridle.testing"

describe("the recipe git-no-rewrite", function()
  testing.cases(testing.load(), {
    { exec = "git commit -m x", effect = "ask", rule = "exec" },
    { exec = "git commit --amend -m x", effect = "deny", rule = "no-amend" },
    { exec = "git commit -m x --am", effect = "deny", rule = "no-amend" },
    { exec = "git rebase -i HEAD~3", effect = "deny", rule = "no-rewrite" },
    { exec = "git -C sub reset --hard HEAD~1", effect = "deny", rule = "no-hard-reset" },
    { exec = "git reset HEAD a.c", effect = "ask", rule = "exec" },
    { exec = "git branch -D main", effect = "deny", rule = "no-branch-removal" },
    { exec = "git reflog expire --expire=now --all", effect = "deny", rule = "no-reflog-loss" },
    { exec = "git clean -fdx", effect = "deny", rule = "no-clean" },
    { exec = "git clean -n", effect = "ask", rule = "exec" },
  })
end)
