local testing = require "bridle.testing"

describe("the recipe npm", function()
  testing.cases(testing.load(), {
    { exec = "npm test", effect = "allow", rule = "scripts" },
    { exec = "pnpm run test:unit", effect = "allow", rule = "scripts" },
    { exec = "npm run deploy", effect = "ask", rule = "exec" },
    { exec = "npm ls", effect = "allow", rule = "npm-reads" },
    { exec = "npm install left-pad", effect = "ask", rule = "install" },
    { exec = "npm --prefix web ci", effect = "ask", rule = "install" },
    { exec = "npx cowsay", effect = "ask", rule = "fetch-and-run" },
    { exec = "npm test && npm publish", effect = "deny", rule = "no-publish" },
  })
end)
