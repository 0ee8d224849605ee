-- The policy that decides when the operator names no other. To change it: copy this file, edit the
-- copy, and say `bridle run -p my-policy.lua ...`.
--
-- A rule says what (action, and a pattern of one kind) and how (deny, ask, allow). Every rule that
-- matches counts, the strictest one wins, and their order never matters. What no rule matches is
-- asked about. A profile or a task manifest can only make the answer stricter.
--
--   action          pattern     matched against
--   fs.read         path        the path inside the workspace; * stays in one directory, ** does not
--   fs.write        path        the same
--   process.exec    command     one simple command, word by word; * stands for anything
--   network         host        host or host:port

local policy = require "bridle.policy"

-- Files that hold secrets by their names. A list may be used in several rules.
local keys = {
  "**/*.pem", "*.pem", "**/*.key", "*.key", "**/id_rsa*", "id_rsa*", "**/id_ed25519*", "id_ed25519*",
  ".ssh/**", "**/.ssh/**", ".aws/**", "**/.aws/**", ".gnupg/**", "**/.gnupg/**", ".netrc", "**/.netrc",
}
local environment = { ".env", ".env.*", "**/.env", "**/.env.*", ".npmrc", "**/.npmrc" }

return policy.bundle {
  api = 1,
  name = "default",
  rules = {
    -- Reading, listing and searching.
    policy.allow { id = "read", action = "fs.read" },
    policy.ask {
      id = "read-environment", action = "fs.read", path = environment,
      reason = "environment files often hold passwords",
    },
    policy.deny {
      id = "read-keys", action = "fs.read", path = keys,
      reason = "private keys and credentials stay unread",
    },

    -- Writing. The sandbox refuses whatever the manifest's allowed_paths do not name.
    policy.ask { id = "write", action = "fs.write" },
    policy.deny {
      id = "write-keys", action = "fs.write", path = keys,
      reason = "private keys and credentials are not written",
    },

    -- Commands run inside the sandbox: no network, no credentials.
    policy.ask { id = "exec", action = "process.exec" },
    policy.deny {
      id = "no-rm-absolute", action = "process.exec",
      command = {
        "rm -rf /*", "rm -fr /*", "rm -r /*", "rm -r -f /*", "rm -f -r /*", "rm -rf ~*", "rm -fr ~*",
        "rm -rf -- /*", "rm --recursive --force /*",
      },
      reason = "name what to remove relative to the workspace",
    },
    policy.deny {
      id = "no-root-tools", action = "process.exec",
      command = {
        "sudo *", "su", "su *", "doas *", "mkfs*", "dd * of=/dev/*", "dd of=/dev/*", "shutdown*",
        "reboot*", "poweroff*", "halt*", "mount *", "umount *",
      },
      reason = "no task needs to administer the machine",
    },
    policy.deny {
      id = "no-push", action = "process.exec", command = { "git push", "git push *" },
      reason = "delivery is the operator's step",
    },

    policy.deny { id = "network", action = "network", reason = "runs have no network" },
  },
}
