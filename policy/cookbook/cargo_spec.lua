local testing = require "bridle.testing"

describe("the recipe cargo", function()
  testing.cases(testing.load(), {
    { exec = "cargo test --workspace", effect = "allow", rule = "build-and-test" },
    { exec = "cargo --offline check", effect = "allow", rule = "build-and-test" },
    { exec = "cargo clippy --fix", effect = "ask", rule = "exec" },
    { exec = "cargo run", effect = "ask", rule = "exec" },
    { exec = "cargo --config x build", effect = "ask", rule = "exec" },
    { exec = "cargo add serde", effect = "ask", rule = "crates" },
    { exec = "cargo publish", effect = "deny", rule = "no-publish" },
  })
end)
