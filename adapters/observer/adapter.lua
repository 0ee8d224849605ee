--- One question to a model, one JSON value back: no tools, no session, one request. Its guest is a part of
--- pid 1's own program (adapters/observer/guest), since nothing else is in the sandbox of observer-v1.
return {
  id = "observer",
  revision = 1,
  entry = { "/.bridle-init", "observe" },
  profiles = {
    ["observer-v1"] = { tools = {} },
    ["observer-native-v1"] = { tools = {} },
  },
  routes = { "chat" },
  artifact = { kind = "json", bytes = 256 << 10 },
  ceilings = { outputBytes = 384 << 10, traceBytes = 4 << 10 },
  system = "Answer with exactly one JSON value and nothing else: no explanation, no code fence.",
  gate = false,
  session = false,
}
