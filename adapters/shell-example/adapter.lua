--- The smallest adapter: a POSIX shell script that shows the model the names of the files in the workspace
--- and gives back what it says. An example to read, and what the tests of the frame run.
return {
  id = "shell-example",
  revision = 1,
  entry = { "/bin/sh", "/opt/shell-example/guest.sh" },
  profiles = {
    ["workspace-v1"] = { tools = { "list" } },
    ["workspace-tmpfs-v1"] = { tools = { "list" } },
  },
  routes = { "chat" },
  artifact = { kind = "text", bytes = 64 << 10 },
  ceilings = { outputBytes = 128 << 10, traceBytes = 4 << 10 },
  gate = false,
  session = false,
}
