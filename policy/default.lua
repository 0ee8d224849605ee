-- The policy that decides when the operator names no other. To change it: copy this file, edit the
-- copy, and say `bridle run -p my-policy.lua ...`.
--
-- A rule says what (action, and a pattern of one kind) and how (deny, ask, allow). Every rule that
-- matches counts, the strictest one wins, and their order never matters; policy.otherwise asks where
-- no rule says more. A profile or a task manifest can only make the answer stricter. To keep these
-- rules and add some: policy.bundle { extend = "default", ... }, see bridle-policy(5).
--
--   action          pattern     matched against
--   fs.read         path        the path inside the workspace; * stays in one directory, ** does not
--   fs.write        path        the same
--   process.exec    command     policy.command { "git", "push" }: a program and its sub-command, wherever
--                               options stand; or a pattern of the words, where * stands for anything
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
    policy.otherwise { id = "write", action = "fs.write" },
    policy.deny {
      id = "write-keys", action = "fs.write", path = keys,
      reason = "private keys and credentials are not written",
    },

    -- Commands run inside the sandbox: no network, no credentials.
    policy.otherwise { id = "exec", action = "process.exec" },
    policy.group {
      action = "process.exec",
      policy.deny {
        id = "no-rm-absolute",
        command = policy.command {
          "rm", flags = { { "-r", "-R", "--recursive" } }, arguments = { "/*", "~*", ".", "..", "../*" },
        },
        reason = "name what to remove relative to the workspace",
      },
      policy.deny {
        id = "no-root-tools",
        command = {
          policy.command { { "sudo", "su", "doas", "pkexec", "runuser" } },
          policy.command { { "mkfs*", "mount", "umount", "losetup", "fdisk", "parted" } },
          policy.command { { "shutdown", "reboot", "poweroff", "halt" } },
          policy.command { "systemctl", { "poweroff", "reboot", "halt", "kexec" } },
          policy.command { "dd", arguments = "of=/dev/*" },
        },
        reason = "no task needs to administer the machine",
      },
      policy.deny {
        id = "no-push",
        command = policy.command { "git", { "push", "send-pack", "send-email" } },
        reason = "delivery is the operator's step",
      },
      policy.ask {
        id = "environment",
        when = { env = { "LD_*", "PATH", "BASH_ENV", "ENV", "IFS", "SHELLOPTS", "BASHOPTS", "PS4",
          "PYTHONSTARTUP", "PYTHONPATH", "NODE_OPTIONS", "PERL5OPT", "PERL5LIB", "RUBYOPT",
          "GIT_SSH*", "GIT_EXTERNAL_DIFF", "GIT_CONFIG*", "GIT_EXEC_PATH", "*PAGER", "*EDITOR" } },
        reason = "these variables make a program run another one",
      },
    },

    policy.deny { id = "network", action = "network", reason = "runs have no network" },
  },
}
