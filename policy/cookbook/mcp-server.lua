-- When: one MCP server is used, and of it only what reads.
-- Not: this version calls no MCP servers itself, so that no part of it asks about 'mcp.call' yet; the
-- subject is SERVER/TOOL. The rules are decided by 'bridle policy why' today.

local policy = require "bridle.policy"

return policy.bundle {
  api = 1,
  name = "mcp-server",
  extend = "default",
  rules = {
    policy.allow {
      id = "tickets", action = "mcp.call", text = { "tickets/get_*", "tickets/list_*", "tickets/search" },
      accept = "unasked-action",
    },
    policy.ask {
      id = "tickets-write", action = "mcp.call", text = { "tickets/create_*", "tickets/comment" },
      reason = "others see it", accept = "unasked-action",
    },
    policy.deny {
      id = "tickets-remove", action = "mcp.call", text = { "tickets/delete_*", "tickets/admin_*" },
      reason = "tickets are removed by people", accept = "unasked-action",
    },
  },
}
