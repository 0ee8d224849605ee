local testing = require "bridle.testing"

describe("the recipe mcp-server", function()
  testing.cases(testing.load(), {
    { action = "mcp.call", subject = "tickets/get_ticket", effect = "allow", rule = "tickets" },
    { action = "mcp.call", subject = "tickets/comment", effect = "ask", rule = "tickets-write" },
    { action = "mcp.call", subject = "tickets/delete_ticket", effect = "deny", rule = "tickets-remove" },
    { action = "mcp.call", subject = "mail/send", effect = "ask", rule = "default" },
  })
end)
