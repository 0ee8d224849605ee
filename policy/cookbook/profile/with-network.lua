--- What network-hosts_spec.lua decides with: run-v1 without the rule that denies the network. It is no
--- profile to run with: the sandbox of this version has no network, whatever a rule says.
return {
  name = "with-network",
  version = 1,
  rules = {
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
    image = "host",
    identity = "dedicated",
    landlock = "required",
    workspace = "bind",
    noexec = {},
    limits = {
      memory_bytes = 2 << 30,
      pids = 256,
      cpu_percent = 200,
      nofile = 1024,
      fsize_bytes = 1 << 30,
      tmp_bytes = 256 << 20,
      tmp_inodes = 20000,
      output_bytes = 64 << 10,
      exec_seconds = 1800,
      wall_seconds = 86400,
    },
  },
  offers = { "run-owner-v1", "run-nolandlock-v1" },
}
