-- Commands that are allowed without a question, since they only read and print. Extended by the
-- shipped bundles default, review-only and ci.
--
-- Each was looked through for options that write a file or run another program; 'without' names
-- those, and with one of them the command is as any other. Not here, since nothing can be said of
-- their arguments: awk, sed, tar, less, make, printf, test, interpreters, test runners. A command
-- here that reads files and has a word which only the shell will know is asked about as well.

local policy = require "bridle.policy"

-- Programs that show or copy what is in a file; not those that print names, sizes or their own words,
-- such as ls and echo. (wc and du show names that a file holds.)
local readers = {
  "cat", "head", "tail", "nl", "tac", "cut", "wc", "du", "sha256sum", "md5sum", "cmp", "comm", "diff", "sort",
  "uniq", "grep", "egrep", "fgrep", "rg", "jq", "git", "find", "cd", "sed", "awk", "perl", "python*", "node",
  "ruby", "less", "more", "od", "xxd", "hexdump", "strings", "base64", "cp", "mv", "ln", "tar", "zip", "dd",
  "tee", "openssl", "curl", "wget", "scp", "rsync",
}

-- Words of such a command that may name a file with secrets, or its directory, wherever they stand. Asked
-- about, not denied: a word that only the shell will know, such as $f or *, may be any of these.
local secret_words = {
  ".env", ".env.*", "*/.env*", "*:.env*", "*.npmrc*", "*.pem*", "*.key", "*id_rsa*", "*id_ed25519*",
  "*.ssh*", "*.aws*", "*.gnupg*", "*.netrc*",
}

local harmless = {
  policy.command { { "pwd", "echo", "true", "false", "cd", "ls", "cat", "head", "wc", "nl", "tac", "cut",
    "tr", "stat", "du", "df", "basename", "dirname", "realpath", "readlink", "seq", "cmp", "comm",
    "sha256sum", "md5sum", "id", "whoami", "uname", "nproc", "which", "grep", "egrep", "fgrep", "jq" } },
  policy.command { "tail", without = { "-f", "-F", "--follow", "--retry" } },
  policy.command { "diff", without = { "-l", "--paginate" } },                 -- they run pr
  policy.command { "sort", without = { "-o", "--output", "--compress-program", "-T",
    "--temporary-directory" } },
  policy.command { "date", without = { "-s", "--set", "-f", "--file" } },      -- -f shows a file
  policy.command { "file", without = { "-C", "--compile", "-m", "--magic-file", "-z", "-Z", "--uncompress",
    "--uncompress-noreport", "-f", "--files-from" } },
  policy.command { "tree", without = { "-o", "-R", "-H", "--fromfile", "--fromtabfile" } },
  policy.command { "rg", without = { "--pre", "--hostname-bin", "-z", "--search-zip", "--hidden", "-.", "-u",
    "--unrestricted", "--no-ignore", "--no-ignore-dot", "--no-ignore-vcs", "--no-ignore-global",
    "--no-ignore-files", "--no-ignore-parent", "--no-ignore-exclude" } },
  policy.command { "find", without = { "-delete", "-exec", "-execdir", "-k", "-fls", "-fprint",
    "-fprint0", "-fprintf", "-files0-from" } },                                -- -k: -ok and -okdir
  "uniq", "uniq -c", "uniq -d", "uniq -u",                                     -- a second file is written

  -- git: not in another repository, whose configuration may name programs. One that lies inside of the
  -- project is reached by cd; what it names runs in the sandbox, without a question.
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

return policy.bundle {
  api = 1,
  name = "harmless",
  rules = {
    policy.group {
      action = "process.exec",
      policy.allow { id = "harmless", command = harmless },
      policy.ask {
        id = "exec-secrets",
        command = policy.command { readers, arguments = secret_words },
        reason = "it may read a file with secrets: a word is such a name, or the shell fills it in",
      },
      policy.ask {
        id = "find-acts",                                                      -- behind a "--" too
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
  },
}
