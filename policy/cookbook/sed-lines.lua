-- When: no pattern says it, a function can: 'sed -n 10,20p file' prints lines and is allowed, any
-- other script of sed may write a file (w) or run a program (e), and is asked about.
-- Not: a function never allows; the rule does, and the function takes back what goes too far. It is
-- called for every request that the rules did not deny, which costs microseconds.

local policy = require "bridle.policy"

return policy.bundle {
  api = 1,
  name = "sed-lines",
  extend = "default",
  rules = {
    policy.allow {
      id = "sed-prints", action = "process.exec",
      command = policy.command { "sed", flags = "-n", without = { "-i", "--in-place", "-e", "--expression",
        "-f", "--file", "-s", "--separate", "-z" } },
    },
    policy.check("sed-script", function(request)
      local argv = request.argv
      if request.action ~= "process.exec" or type(argv) ~= "table" then return nil end
      for at, word in ipairs(argv) do
        if word == "sed" or word:find("/sed$") then
          local script = argv[at + 2] or ""
          if argv[at + 1] ~= "-n" or not (script:find("^%d+p$") or script:find("^%d+,%d+p$")) then
            return "ask", "only 'sed -n 10,20p FILE' prints lines and no more"
          end
        end
      end
    end),
  },
}
