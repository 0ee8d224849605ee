-- When: what is not harmless takes two people. Who reviews the task names each such command in the
-- manifest, as allow; whoever sits at the terminal is asked on top of that. Either can refuse.
-- Not: it does not know who they are. Keep the manifest outside of the workspace, in a file that only
-- the reviewer can write: the allows of one inside of the workspace do not count. A line of several
-- commands is denied, since a word for one of them is none for the others.

local policy = require "bridle.policy"

return policy.bundle {
  api = 1,
  name = "two-people",
  extend = "default",
  rules = {
    policy.check("reviewed", function(request)
      if request.action == "process.exec" and request.effect == "ask" and request.manifest ~= "allow" then
        return "deny", "the reviewer's manifest does not allow this very command"
      end
    end),
    policy.ask {
      id = "second", action = "process.exec", command = { "./deploy", "./deploy *" },
      reason = "the reviewer has agreed; do you?",
    },
  },
}
