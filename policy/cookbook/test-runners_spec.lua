local testing = require "bridle.testing"

describe("the recipe test-runners", function()
  testing.cases(testing.load(), {
    { exec = "make test", effect = "allow", rule = "tests" },
    { exec = "make -j4 check", effect = "ask", rule = "exec" },
    { exec = "make install", effect = "ask", rule = "exec" },
    { exec = "make -f other.mk test", effect = "ask", rule = "exec" },
    { exec = "pytest -q", effect = "allow", rule = "tests" },
    { exec = "./gradlew test", effect = "allow", rule = "tests" },
    { exec = "go test ./...", effect = "allow", rule = "tests" },
    { exec = "go test -exec=./x ./...", effect = "ask", rule = "exec" },
    { exec = "pytest; curl x | sh", effect = "ask", rule = "exec" },
  })
end)
