local testing = require "bridle.testing"

describe("the recipe databases", function()
  testing.cases(testing.load(), {
    { exec = "psql -h localhost test", effect = "ask", rule = "exec" },
    { exec = "psql -h db.prod.internal app", effect = "deny", rule = "no-prod" },
    { exec = "psql postgres://u@prod-db/app", effect = "deny", rule = "no-prod" },
    { exec = "mysql --host=prod1 app", effect = "deny", rule = "no-prod" },
    { exec = "PGHOST=prod-db psql app", effect = "deny", rule = "no-prod-variables" },
    { exec = "psql test -c 'DROP DATABASE app'", effect = "deny", rule = "no-drop" },
    { exec = "dropdb test", effect = "deny", rule = "no-drop" },
  })
end)
