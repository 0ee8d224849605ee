local testing = require "bridle.testing"

describe("the recipe apt", function()
  testing.cases(testing.load(), {
    { exec = "apt-cache policy gcc", effect = "allow", rule = "look" },
    { exec = "apt show gcc", effect = "allow", rule = "look" },
    { exec = "dpkg -l", effect = "allow", rule = "look" },
    { exec = "apt-get -y install gcc", effect = "deny", rule = "no-install" },
    { exec = "DEBIAN_FRONTEND=noninteractive apt-get install -y gcc", effect = "deny", rule = "no-install" },
    { exec = "dpkg -i x.deb", effect = "deny", rule = "no-install" },
    { exec = "apk add gcc", effect = "deny", rule = "no-install" },
    { exec = "apt-get update", effect = "ask", rule = "exec" },
  })
end)
