local testing = require "bridle.testing"

describe("the recipe containers", function()
  testing.cases(testing.load(), {
    { exec = "docker ps -a", effect = "allow", rule = "look" },
    { exec = "docker -H tcp://x ps", effect = "ask", rule = "exec" },
    { exec = "docker build -t x .", effect = "ask", rule = "exec" },
    { exec = "docker run --rm --privileged x", effect = "deny", rule = "no-privileges" },
    { exec = "podman run --network=host x", effect = "deny", rule = "no-privileges" },
    { exec = "docker run -v /:/host x", effect = "deny", rule = "no-host-mounts" },
    { exec = "docker run -v /var/run/docker.sock:/s x", effect = "deny", rule = "no-host-mounts" },
    { exec = "docker push x", effect = "deny", rule = "no-image-push" },
  })
end)
