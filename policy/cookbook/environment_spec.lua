local testing = require "bridle.testing"

describe("the recipe environment", function()
  testing.cases(testing.load(), {
    { exec = "NODE_TLS_REJECT_UNAUTHORIZED=0 npm test", effect = "deny", rule = "no-tls-off" },
    { exec = "LD_PRELOAD=./x.so ls", effect = "deny", rule = "no-injection" },
    { exec = "HOME=/tmp git status", effect = "deny", rule = "no-other-home" },
    { exec = "LD_AUDIT=x.so ls", effect = "deny", rule = "no-injection" },
    { exec = "export BASH_ENV=x; bash -c ls", effect = "ask", rule = "opaque-command" },
    { exec = "LC_ALL=C sort a", effect = "allow", rule = "harmless" },
    { exec = "ls", effect = "allow", rule = "harmless" },
  })
end)
