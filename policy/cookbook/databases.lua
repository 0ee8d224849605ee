-- When: clients of a test database are run, and the production one is out of reach.
-- Not: it reads names. A host under another name, or one in a configuration file, is not seen, and
-- SQL is not read; every use is asked about. Better: no password of production on this machine.

local policy = require "bridle.policy"

local clients = { "psql", "pg_dump", "pg_restore", "createdb", "dropdb", "mysql", "mysqldump", "mariadb",
  "redis-cli", "mongosh", "mongodump", "sqlcmd" }

return policy.bundle {
  api = 1,
  name = "databases",
  extend = "default",
  rules = {
    policy.group {
      action = "process.exec",
      reason = "the production database is not reached from a run",
      policy.deny {
        id = "no-prod", command = policy.command { clients, arguments = { "*prod*", "*PROD*",
          "*.live.example.org*" } },
      },
      policy.deny {
        id = "no-prod-variables",
        when = { env = { "PGHOST=*prod*", "PGSERVICE=*prod*", "PGDATABASE=*prod*", "MYSQL_HOST=*prod*",
          "DATABASE_URL=*prod*", "REDIS_URL=*prod*" } },
      },
    },
    policy.deny {
      id = "no-drop", action = "process.exec",
      command = { policy.command { "dropdb" },
        policy.command { clients, arguments = { "*DROP DATABASE*", "*drop database*", "*TRUNCATE*",
          "*truncate *" } } },
      reason = "data is removed by people",
    },
  },
}
