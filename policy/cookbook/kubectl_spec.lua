local testing = require "bridle.testing"

describe("the recipe kubectl", function()
  testing.cases(testing.load(), {
    { exec = "kubectl get pods -n web", effect = "allow", rule = "look" },
    { exec = "kubectl -n web logs web-1", effect = "allow", rule = "look" },
    { exec = "kubectl --context prod get pods", effect = "ask", rule = "exec" },
    { exec = "kubectl get secrets -o yaml", effect = "deny", rule = "no-secrets" },
    { exec = "kubectl -n web get secret/db", effect = "deny", rule = "no-secrets" },
    { exec = "kubectl apply -f x.yaml", effect = "deny", rule = "no-changes" },
    { exec = "kubectl --namespace=web delete pod x", effect = "deny", rule = "no-changes" },
    { exec = "helm upgrade web ./chart", effect = "deny", rule = "no-changes" },
  })
end)
