-- For the tests of editors: reads are allowed, some writes are asked about, one never happens.
local policy = require "bridle.policy"

return policy.bundle {
  api = 1,
  name = "editors",
  rules = {
    policy.allow { id = "read", action = "fs.read" },
    policy.ask { id = "asked", action = "fs.write", path = "out/asked*.txt", reason = "it is asked about" },
    policy.deny { id = "never", action = "fs.write", path = "out/never.txt" },
    policy.allow { id = "sleep", action = "process.exec", command = "sleep 60" },
    policy.otherwise { id = "exec", action = "process.exec" },
  },
}
