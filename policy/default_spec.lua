--- What the policy that is built in decides. `bridle policy test policy/default.lua` runs this; every
--- rule of its own decides a case here, and a change of any breaks one.
local testing = require "bridle.testing"

describe("the default policy", function()
  local bundle = testing.load()

  describe("reading", function()
    testing.cases(bundle, {
      { action = "fs.read", subject = "src/main.c", effect = "allow", rule = "read" },
      { action = "fs.read", subject = ".", effect = "allow", rule = "read" },
      { action = "fs.read", subject = ".env", effect = "ask", rule = "read-environment" },
      { action = "fs.read", subject = "app/.env.local", effect = "ask", rule = "read-environment" },
      { action = "fs.read", subject = "pkg/.npmrc", effect = "ask", rule = "read-environment" },
      { action = "fs.read", subject = "environment.md", effect = "allow", rule = "read" },
      { action = "fs.read", subject = "home/.ssh/config", effect = "deny", rule = "read-keys" },
      { action = "fs.read", subject = "tls/server.key", effect = "deny", rule = "read-keys" },
      { action = "fs.read", subject = "id_ed25519", effect = "deny", rule = "read-keys" },
      { action = "fs.read", subject = "../outside", effect = "deny", rule = "invalid-subject" },
      { "an empty path", action = "fs.read", subject = "", effect = "deny", rule = "empty-subject" },
    })
  end)

  describe("writing", function()
    testing.cases(bundle, {
      { action = "fs.write", subject = "src/main.c", effect = "allow", rule = "write" },
      { action = "fs.write", subject = "README.md", effect = "allow", rule = "write" },
      { action = "fs.write", subject = "app/.env", effect = "ask", rule = "write-environment" },
      { action = "fs.write", subject = ".envrc", effect = "ask", rule = "write-environment" },
      { action = "fs.write", subject = ".github/workflows/ci.yml", effect = "ask",
        rule = "write-automation" },
      { action = "fs.write", subject = "sub/HEAD", effect = "ask", rule = "write-repository" },
      { action = "fs.write", subject = ".gitattributes", effect = "ask", rule = "write-repository" },
      { action = "fs.write", subject = "a/b/cert.pem", effect = "deny", rule = "write-keys" },
      { action = "fs.write", subject = ".aws/credentials", effect = "deny", rule = "write-keys" },
      { action = "fs.write", subject = ".git/config", effect = "deny", rule = "no-git-internals" },
    })
  end)

  describe("adapters", function()
    testing.cases(bundle, {
      { action = "adapter.run", subject = "pi-coding@1", effect = "allow", rule = "adapter" },
    })
  end)

  describe("commands", function()
    testing.cases(bundle, {
      { exec = { "git", "log" }, effect = "allow", rule = "harmless" },
      { exec = "make -j2 test", effect = "ask", rule = "exec" },
      { exec = "rm -rf build", effect = "ask", rule = "exec" },
      { exec = "rm -rf /usr", effect = "deny", rule = "no-rm-absolute" },
      { exec = "cd x && rm --recursive ../y", effect = "deny", rule = "no-rm-absolute" },
      { exec = { "rm", "-r", "--", ".." }, effect = "deny", rule = "no-rm-absolute" },
      { exec = "sudo ls", effect = "deny", rule = "no-root-tools" },
      { exec = "mkfs.ext4 disk", effect = "deny", rule = "no-root-tools" },
      { exec = "reboot", effect = "deny", rule = "no-root-tools" },
      { exec = "systemctl --no-wall poweroff", effect = "deny", rule = "no-root-tools" },
      { exec = "dd if=a of=/dev/sda", effect = "deny", rule = "no-root-tools" },
      { exec = "dd if=a of=b", effect = "ask", rule = "exec" },
      { exec = "git push", effect = "deny", rule = "no-push" },
      { "options stand before the sub-command", exec = "git -C d --no-pager push origin main",
        effect = "deny", rule = "no-push" },
      { "a push in a list is one", exec = "git add -A && git commit -m x; git push",
        effect = "deny", rule = "no-push" },
      { exec = "git send-email x.patch", effect = "deny", rule = "no-push" },
      { exec = "PATH=/tmp/x ls", effect = "ask", rule = "environment" },
      { exec = "LD_PRELOAD=./a.so make", effect = "ask", rule = "environment" },
      { "a redirection writes", exec = "echo x > src/a.c", effect = "allow", rule = "write" },
      { "only commands that say what they write", exec = "touch src/a.c", effect = "ask", rule = "exec" },
      { "not where nobody looks", exec = "echo x > deploy.key", effect = "deny", rule = "write-keys" },
    })
  end)

  describe("the network", function()
    testing.cases(bundle, {
      { action = "network", subject = "example.com:443", effect = "deny", rule = "network" },
    })
  end)

  it("asks about what it does not know", function()
    local decision = bundle:decide { action = "mcp.call", subject = "files/read" }
    assert.equal("ask", decision.effect)
    assert.equal("default", decision.ruleId)
  end)
end)
