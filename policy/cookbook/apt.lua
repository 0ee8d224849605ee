-- When: the machine's packages come from an image that people build; the agent may look, not change.
-- Not: it does not hinder a program that unpacks something into the workspace.

local policy = require "bridle.policy"

return policy.bundle {
  api = 1,
  name = "apt",
  extend = "default",
  rules = {
    policy.group {
      action = "process.exec",
      policy.allow {
        id = "look",
        command = { policy.command { "apt-cache", { "search", "show", "policy", "depends" },
            without = { "-o", "--option", "-c", "--config-file" } },
          policy.command { "apt", { "search", "show", "policy" } },
          "dpkg -l", "dpkg -l *", "dpkg -L *", "dpkg -s *" },
      },
      policy.deny {
        id = "no-install",
        command = {
          policy.command { { "apt", "apt-get", "aptitude" }, { "install", "reinstall", "remove", "purge",
            "upgrade", "full-upgrade", "dist-upgrade", "autoremove", "build-dep" } },
          policy.command { "dpkg", flags = { { "-i", "--install", "-r", "--remove", "-P", "--purge" } } },
          policy.command { { "dnf", "yum", "apk", "pacman", "zypper", "brew", "snap", "flatpak" } },
        },
        reason = "say which package is missing; the image is built elsewhere",
      },
    },
  },
}
