-- When: images are built and looked at; containers that reach out of themselves are denied.
-- Not: who may talk to the engine's socket is root on that machine. A run's sandbox has no such
-- socket; this is for a profile that gives it one.

local policy = require "bridle.policy"

local engine = { "docker", "podman" }

return policy.bundle {
  api = 1,
  name = "containers",
  extend = "default",
  rules = {
    policy.group {
      action = "process.exec",
      policy.allow { id = "look", command = policy.command { engine, { "ps", "images", "logs", "version",
        "info" } } },
      policy.deny {
        id = "no-privileges",
        command = policy.command { engine, { "run", "create", "exec" }, flags = { { "--privileged",
          "--cap-add", "--device", "--security-opt", "--pid", "--network", "--net", "--volumes-from" } } },
        reason = "a container with these options is not one",
      },
      policy.deny {
        id = "no-host-mounts",
        command = policy.command { engine, { "run", "create" }, arguments = { "/:*", "/etc*", "/root*",
          "/home*", "/var/run/*", "*source=/*", "*src=/*" } },
        reason = "directories of the host stay out of containers",
      },
      policy.deny {
        id = "no-image-push", command = policy.command { engine, { "push", "login" } },
        reason = "delivery is the operator's step",
      },
    },
  },
}
