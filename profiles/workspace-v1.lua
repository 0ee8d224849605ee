--- A coding harness: a copy of the workspace and a state directory on disks with quotas, a read-only
--- image with an immutable id, /tmp and home in memory, no network, and a provider through one socket. All
--- of it, or nothing is started. Needs root and loop devices.
return {
  name = "workspace-v1",
  version = 1,
  rules = {
    {
      id = "no-network",
      effect = "deny",
      actions = { "network" },
      match = "any",
      patterns = {},
      reason = "this profile's sandbox has no network",
    },
    {
      -- hooks and configuration there run outside of the sandbox, as whoever uses git next
      id = "no-git-internals",
      effect = "deny",
      actions = { "fs.write" },
      match = "path",
      patterns = { ".git", ".git/**", "**/.git", "**/.git/**" },
      reason = "git's own files are not written by tools; they could run code outside of the sandbox",
    },
  },
  sandbox = {
    backend = "native",
    image = "required",
    identity = "dedicated",
    landlock = "required",
    workspace = "lease",
    noexec = { "state" },
    sockets = { "provider", "gate" },
    limits = {
      memory_bytes = 4 << 30,
      pids = 1024,
      cpu_percent = 400,
      nofile = 4096,
      fsize_bytes = 4 << 30,
      tmp_bytes = 256 << 20,
      tmp_inodes = 20000,
      output_bytes = 64 << 10,
      exec_seconds = 3600,
      wall_seconds = 86400,
    },
    disks = {
      workspace = { kind = "ext4", bytes = 4 << 30, inodes = 200000 },
      state = { kind = "ext4", bytes = 1 << 30, inodes = 50000 },
    },
  },
  offers = { "workspace-tmpfs-v1" },
}
