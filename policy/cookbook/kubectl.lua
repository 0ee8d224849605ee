-- When: the agent looks into a cluster and changes nothing.
-- Not: what it may read there is the cluster's own matter (RBAC); another context or cluster is
-- asked about.

local policy = require "bridle.policy"

return policy.bundle {
  api = 1,
  name = "kubectl",
  extend = "default",
  rules = {
    policy.group {
      action = "process.exec",
      policy.allow {
        id = "look",
        command = policy.command { "kubectl", { "get", "describe", "logs", "top", "explain", "version" },
          without = { "--raw", "--context", "--cluster", "--kubeconfig", "--as", "--token", "-s",
            "--server" } },
      },
      policy.deny {
        id = "no-secrets",
        command = policy.command { "kubectl", { "get", "describe" }, { "secret", "secrets", "secret/*",
          "secrets/*", "*,secret*", "secret*,*" } },
        reason = "secrets of the cluster stay there",
      },
      policy.deny {
        id = "no-changes",
        command = {
          policy.command { "kubectl", { "apply", "create", "delete", "edit", "patch", "replace", "scale",
            "drain", "cordon", "taint", "label", "annotate", "exec", "cp", "port-forward", "proxy", "run",
            "set", "rollout" } },
          policy.command { "helm", { "install", "upgrade", "uninstall", "rollback" } },
        },
        reason = "the cluster is changed by people; write the manifest into the workspace",
      },
    },
  },
}
