-- What no shipped bundle lets happen, whatever else it allows: default, strict, review-only
-- and ci extend this one. A bundle of your own that extends one of those has these rules too, and
-- cannot replace them. To leave one out, copy this file as well, and put its rules into your own.

local policy = require "bridle.policy"

-- Files that hold secrets by their names. A list may be used in several rules.
local keys = {
  "**/*.pem", "*.pem", "**/*.key", "*.key", "**/id_rsa*", "id_rsa*", "**/id_ed25519*", "id_ed25519*",
  ".ssh/**", "**/.ssh/**", ".aws/**", "**/.aws/**", ".gnupg/**", "**/.gnupg/**", ".netrc", "**/.netrc",
}

return policy.bundle {
  api = 1,
  name = "denials",
  rules = {
    policy.deny {
      id = "read-keys", action = "fs.read", path = keys,
      reason = "private keys and credentials stay unread",
    },
    policy.deny {
      id = "write-keys", action = "fs.write", path = keys,
      reason = "private keys and credentials are not written",
    },

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
    },

    policy.deny { id = "network", action = "network", reason = "runs have no network" },
  },
}
