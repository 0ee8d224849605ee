-- The policy that decides when the operator names no other. To change it: copy this file, edit the
-- copy, and say `bridle run -p my-policy.lua ...`.
--
-- A rule says what (action, and a pattern of one kind) and how (deny, ask, allow). Every rule that
-- matches counts, the strictest one wins, and their order never matters; policy.otherwise asks where
-- no rule says more. A profile or a task manifest can only make the answer stricter. Two parts have
-- files of their own: policy/denials.lua, what is denied in every shipped bundle, and
-- policy/harmless.lua, the commands that are allowed without a question. To keep these rules and add
-- some: policy.bundle { extend = "default", ... }, see bridle-policy(5).
--
--   action          pattern     matched against
--   fs.read         path        the path inside the workspace; * stays in one directory, ** does not
--   fs.write        path        the same
--   process.exec    command     policy.command { "git", "push" }: a program and its sub-command, wherever
--                               options stand; or a pattern of the words, where * stands for anything
--   network         host        host or host:port

local policy = require "bridle.policy"

local environment = { ".env", ".env.*", "**/.env", "**/.env.*", ".npmrc", "**/.npmrc", ".envrc", "**/.envrc" }

return policy.bundle {
  api = 1,
  name = "default",
  extend = { "denials", "harmless" },
  rules = {
    -- Reading, listing and searching.
    policy.allow { id = "read", action = "fs.read" },
    policy.ask {
      id = "read-environment", action = "fs.read", path = environment,
      reason = "environment files often hold passwords",
    },

    -- Writing. The sandbox refuses whatever the manifest's allowed_paths do not name. Asked about are
    -- the files by which a write becomes a command that somebody runs later.
    policy.allow { id = "write", action = "fs.write", accept = "over-broad" },
    policy.ask {
      id = "write-environment", action = "fs.write", path = environment,
      reason = "environment files decide what programs do, and often hold passwords",
    },
    policy.ask {
      id = "write-automation", action = "fs.write",
      path = { ".github/**", ".gitlab-ci.yml", ".circleci/**", "Jenkinsfile", "**/Jenkinsfile",
        ".vscode/**", ".idea/**", ".husky/**", ".pre-commit-config.yaml" },
      reason = "it runs on another machine, or when somebody opens the project",
    },
    policy.ask {
      id = "write-repository", action = "fs.write",
      path = { "HEAD", "**/HEAD", ".gitmodules", "**/.gitmodules", ".gitattributes", "**/.gitattributes" },
      reason = "it makes a directory a repository, or decides what git runs",
    },

    -- Harnesses of others, which run inside the sandbox. Which ones, and with which profile, is said in
    -- bridle.lua; no other can be started.
    policy.allow { id = "adapter", action = "adapter.run" },

    -- Commands run inside the sandbox: no network, no credentials. What is not harmless is asked about.
    policy.otherwise { id = "exec", action = "process.exec" },
  },
}
