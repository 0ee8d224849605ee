-- policy/default.lua, with what it extends, as it was before writes in scope were allowed: the counts
-- "before" of docs/asks.md are made with it. No run uses it; it stays as it is.

local policy = require "bridle.policy"

local keys = {
  "**/*.pem", "*.pem", "**/*.key", "*.key", "**/id_rsa*", "id_rsa*", "**/id_ed25519*", "id_ed25519*",
  ".ssh/**", "**/.ssh/**", ".aws/**", "**/.aws/**", ".gnupg/**", "**/.gnupg/**", ".netrc", "**/.netrc",
}

local secret_words = {
  ".env", ".env.*", "*/.env*", "*:.env*", "*.npmrc*", "*.pem*", "*.key", "*id_rsa*", "*id_ed25519*",
  "*.ssh*", "*.aws*", "*.gnupg*", "*.netrc*",
}

local harmless = {
  policy.command { { "pwd", "echo", "true", "false", "cd", "ls", "cat", "head", "wc", "nl", "tac", "cut",
    "tr", "stat", "du", "df", "basename", "dirname", "realpath", "readlink", "seq", "cmp", "comm",
    "sha256sum", "md5sum", "id", "whoami", "uname", "nproc", "which", "grep", "egrep", "fgrep", "jq" } },
  policy.command { "tail", without = { "-f", "-F", "--follow", "--retry" } },
  policy.command { "diff", without = { "-l", "--paginate" } },
  policy.command { "sort", without = { "-o", "--output", "--compress-program", "-T",
    "--temporary-directory" } },
  policy.command { "date", without = { "-s", "--set" } },
  policy.command { "file", without = { "-C", "--compile", "-m", "--magic-file", "-z", "-Z", "--uncompress",
    "--uncompress-noreport" } },
  policy.command { "tree", without = { "-o", "-R", "-H" } },
  policy.command { "rg", without = { "--pre", "--hostname-bin", "-z", "--search-zip", "--hidden", "-.", "-u",
    "--unrestricted", "--no-ignore", "--no-ignore-dot", "--no-ignore-vcs", "--no-ignore-global",
    "--no-ignore-files", "--no-ignore-parent", "--no-ignore-exclude" } },
  policy.command { "find", without = { "-delete", "-exec", "-execdir", "-k", "-fls", "-fprint",
    "-fprint0", "-fprintf", "-files0-from" } },
  "uniq", "uniq -c", "uniq -d", "uniq -u",

  policy.command {
    "git", { "status", "log", "diff", "show", "blame", "grep", "rev-parse", "rev-list", "ls-files", "ls-tree",
      "cat-file", "shortlog", "describe", "merge-base", "name-rev" },
    without = { "-C", "--git-dir", "--work-tree", "--output", "--ext-diff", "--textconv", "--filters",
      "--show-signature", "-O", "--open-files-in-pager", "--no-index", "--contents" },
  },
  "git --version", "git branch", "git branch -a", "git branch -v", "git branch -vv",
  "git branch --show-current", "git branch --list", "git remote", "git remote -v", "git stash list",
  "git tag", "git tag -l", "git tag --list",
}

local environment = { ".env", ".env.*", "**/.env", "**/.env.*", ".npmrc", "**/.npmrc" }

return policy.bundle {
  api = 1,
  name = "before",
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
    policy.group {
      action = "process.exec",
      policy.allow { id = "harmless", command = harmless },
      policy.ask {
        id = "exec-secrets",
        command = policy.command { "*", arguments = secret_words },
        reason = "a file or directory of that name often holds secrets",
      },
      policy.ask {
        id = "find-acts",
        command = policy.command { "find", arguments = { "-delete", "-exec*", "-ok*", "-fls", "-fprint*",
          "-files0-from*" } },
        reason = "this find writes, removes or runs something",
      },
      policy.ask {
        id = "environment",
        when = { env = { "LD_*", "PATH", "BASH_ENV", "ENV", "IFS", "SHELLOPTS", "BASHOPTS", "PS4",
          "PYTHONSTARTUP", "PYTHONPATH", "NODE_OPTIONS", "PERL5OPT", "PERL5LIB", "RUBYOPT",
          "GIT_SSH*", "GIT_EXTERNAL_DIFF", "GIT_CONFIG*", "GIT_EXEC_PATH", "*PAGER", "*EDITOR" } },
        reason = "these variables make a program run another one",
      },
    },
    policy.allow { id = "read", action = "fs.read" },
    policy.ask {
      id = "read-environment", action = "fs.read", path = environment,
      reason = "environment files often hold passwords",
    },
    policy.otherwise { id = "write", action = "fs.write" },
    policy.otherwise { id = "exec", action = "process.exec" },
  },
}
