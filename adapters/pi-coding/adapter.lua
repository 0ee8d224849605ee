--- Pi, the coding agent (npm @earendil-works/pi-coding-agent), with its own tools in a workspace lease. What
--- it is made of: packages.txt; its image: 'bridle image build pi-coding'; about it: README.md.
local tools = { "read", "bash", "edit", "write", "grep", "find", "ls" }

return {
  id = "pi-coding",
  revision = 1,
  entry = { "/opt/pi/bin/node", "/opt/pi/lib/boot.cjs" },
  profiles = {
    ["workspace-v1"] = { tools = tools },
    ["workspace-tmpfs-v1"] = { tools = tools },
  },
  routes = { "chat", "responses", "messages" },
  session = true,
  artifact = { kind = "text", bytes = 256 << 10 },
  ceilings = { outputBytes = 512 << 10, traceBytes = 16 << 10 },
  gate = true,
}
