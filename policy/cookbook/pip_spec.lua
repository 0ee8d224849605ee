local testing = require "bridle.testing"

describe("the recipe pip", function()
  testing.cases(testing.load(), {
    { exec = "pytest -q tests", effect = "allow", rule = "tests" },
    { exec = "python3 -m pytest -k slow", effect = "allow", rule = "tests-as-module" },
    { exec = "python3 x.py", effect = "ask", rule = "exec" },
    { exec = "pip list", effect = "allow", rule = "pip-reads" },
    { exec = "pip install requests", effect = "ask", rule = "install" },
    { exec = "pip install --break-system-packages x", effect = "deny", rule = "no-system-packages" },
    { exec = "twine upload dist/x", effect = "deny", rule = "no-publish" },
    { exec = "poetry publish --build", effect = "deny", rule = "no-publish" },
  })
end)
