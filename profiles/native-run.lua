--- The ceiling of profile run-v1: what no policy and no manifest can loosen. Few and hard.
return {
  name = "run-v1",
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
}
