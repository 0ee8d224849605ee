-- When: a Python project; tests and linters run, installing is asked, and goes into an environment.
-- Not: pytest runs the code of the workspace, conftest.py included.

local policy = require "bridle.policy"

local pip = { "pip", "pip3", "uv", "poetry" }

return policy.bundle {
  api = 1,
  name = "pip",
  extend = "default",
  rules = {
    policy.group {
      action = "process.exec",
      policy.allow { id = "tests", command = policy.command { { "pytest", "ruff", "mypy" } } },
      policy.allow {
        id = "tests-as-module", command = { "python -m pytest", "python -m pytest *", "python3 -m pytest",
          "python3 -m pytest *" },
      },
      policy.allow { id = "pip-reads", command = policy.command { { "pip", "pip3" }, { "list", "show",
        "check" } } },
      policy.ask {
        id = "install", command = policy.command { pip, { "install", "add", "sync", "update", "remove",
          "uninstall" } },
        reason = "packages bring code that runs",
      },
      policy.deny {
        id = "no-system-packages",
        command = policy.command { { "pip", "pip3" }, "install", flags = { { "--break-system-packages",
          "--user" } } },
        reason = "packages go into the project's own environment",
      },
      policy.deny {
        id = "no-publish", command = { policy.command { "twine", "upload" }, policy.command { pip,
          "publish" } },
        reason = "publishing is the operator's step",
      },
    },
  },
}
