-- When: some variables switch off what protects, and must not be set for a command.
-- Not: it sees what is set for one command, not what a program sets for its children; a line that
-- exports such a variable, or sets it for a wrapper such as 'sh -c', is asked about, and not denied.

local policy = require "bridle.policy"

return policy.bundle {
  api = 1,
  name = "environment",
  extend = "default",
  rules = {
    policy.group {
      action = "process.exec",
      policy.deny {
        id = "no-tls-off",
        when = { env = { "NODE_TLS_REJECT_UNAUTHORIZED=0", "GIT_SSL_NO_VERIFY", "PYTHONHTTPSVERIFY=0",
          "CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "SSL_CERT_FILE" } },
        reason = "certificates are checked",
      },
      policy.deny {
        id = "no-injection", when = { env = { "LD_PRELOAD", "LD_AUDIT", "LD_LIBRARY_PATH", "BASH_ENV" } },
        reason = "no other code goes into a program",
      },
      policy.deny {
        id = "no-other-home", when = { env = { "HOME", "XDG_*" } },
        reason = "programs read their configuration from where it was put",
      },
    },
  },
}
