-- What is denied, here and in every bundle that is shipped.
local testing = require "bridle.testing"

local denied = {
  { action = "fs.read", subject = "home/.ssh/config", effect = "deny", rule = "read-keys" },
  { action = "fs.read", subject = "id_ed25519.pub", effect = "deny", rule = "read-keys" },
  { action = "fs.write", subject = "a/b/cert.pem", effect = "deny", rule = "write-keys" },
  { action = "fs.write", subject = ".aws/credentials", effect = "deny", rule = "write-keys" },
  { exec = "rm -rf /usr", effect = "deny", rule = "no-rm-absolute" },
  { exec = "cd x && rm --recursive ../y", effect = "deny", rule = "no-rm-absolute" },
  { exec = "sudo ls", effect = "deny", rule = "no-root-tools" },
  { exec = "mkfs.ext4 disk", effect = "deny", rule = "no-root-tools" },
  { exec = "systemctl --no-wall poweroff", effect = "deny", rule = "no-root-tools" },
  { exec = "dd if=a of=/dev/sda", effect = "deny", rule = "no-root-tools" },
  { exec = "git push", effect = "deny", rule = "no-push" },
  { exec = "git -C d --no-pager push origin main", effect = "deny", rule = "no-push" },
  { exec = "git add -A && git commit -m x; git push", effect = "deny", rule = "no-push" },
  { exec = "echo x > deploy.key", effect = "deny", rule = "write-keys" },
  { action = "network", subject = "example.com:443", effect = "deny", rule = "network" },
}

describe("the bundle denials", function()
  testing.cases(testing.load(), denied)
  testing.cases(testing.load(), {
    { exec = "cat src/a.c", effect = "ask", rule = "default" },
    { exec = "rm -rf build", effect = "ask", rule = "default" },
    { action = "fs.read", subject = "src/a.c", effect = "ask", rule = "default" },
  })
end)

for _, name in ipairs { "default", "strict", "review-only", "ci" } do
  describe("the denials in " .. name, function()
    local list = {}
    for i, case in ipairs(denied) do
      -- a rule of the bundle's own may deny as well, and be named first
      list[i] = { exec = case.exec, action = case.action, subject = case.subject, effect = "deny" }
    end
    testing.cases(testing.load(name .. ".lua"), list)
  end)
end
