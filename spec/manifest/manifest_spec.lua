package.path = (os.getenv("BRIDLE_SOURCE") or ".") .. "/spec/support/?.lua;" .. package.path
local sandbox = require "sandbox"
local compile = require "bridle.compile"
local manifest = require "bridle.manifest"
local json = sandbox.json

local function document(changes)
  local doc = json.decode([[{"id":"fix-parser","title":"Fix","goal":"Do it.\n","acceptance":["done"],
    "allowed_paths":["src/**"],"permissions":{},"delivery":{"type":"none"}}]])
  for key, value in pairs(changes or {}) do doc[key] = value ~= json.null and value or nil end
  return doc
end

local function normalise(changes)
  local warnings = {}
  return manifest.normalise(document(changes), function(text) warnings[#warnings + 1] = text end), warnings
end

describe("a manifest", function()
  it("has a normal form", function()
    local m = normalise { allowed_paths = json.array { "docs/", "a.txt", "src/**" },
      budget = { max_tool_calls = 5 } }
    assert.same({ "docs/**", "a.txt", "src/**" }, { table.unpack(m.allowed_paths) })
    assert.same({ max_tool_calls = 5 }, m.budget)
    assert.is_false(m.generated)
    assert.same({ type = "none" }, m.delivery)
  end)

  local cases = {
    { "no id", { id = json.null }, "lacks the key 'id'" },
    { "an id that is not kebab-case", { id = "Fix_It" }, "expected kebab%-case" },
    { "an id with a double hyphen", { id = "a--b" }, "kebab%-case" },
    { "a title of two lines", { title = "a\nb" }, "control character" },
    { "a title that is a number", { title = 7 }, "'title': expected a text, found 7" },
    { "an empty goal", { goal = "" }, "'goal' must not be empty" },
    { "no acceptance", { acceptance = json.array {} }, "needs at least 1 element" },
    { "acceptance as a text", { acceptance = "x" }, "'acceptance': expected a list" },
    { "an acceptance that is a list", { acceptance = json.array { json.array { "x" } } },
      "'acceptance%[1%]': expected a text, found a list" },
    { "an unknown delivery", { delivery = { type = "mail" } }, "expected one of 'pull_request'" },
    { "a delivery with more", { delivery = { type = "none", to = "x" } }, "'delivery.to' is not a key" },
    { "an unknown key", { permisions = {} }, "did you mean 'permissions'" },
    { "a budget of nothing", { budget = { max_tool_calls = 0 } }, "an integer from 1 to 1000" },
    { "a budget over the ceiling", { budget = { max_tool_calls = 1001 } }, "an integer from 1 to 1000" },
    { "a budget that is a float", { budget = { max_model_tokens = 1.5 } }, "an integer" },
    { "an effect of another name", { permissions = { ["fs.read"] = "Allow" } }, "did you mean 'allow'" },
    { "a misspelt action", { permissions = { ["fs.wirte"] = "deny" } }, "did you mean 'fs.write'" },
    { "a bad pattern", { permissions = { ["fs.write"] = { ["../x"] = "deny" } } }, "never has the segment" },
  }
  for _, case in ipairs(cases) do
    it("is refused with " .. case[1], function()
      assert.matches(case[3], sandbox.refusal(normalise, case[2]))
    end)
  end

  it("takes ceilings exactly", function()
    local m = normalise { budget = { max_tool_calls = 1000, max_model_tokens = 10000000 } }
    assert.equal(1000, m.budget.max_tool_calls)
    assert.equal(10000000, m.budget.max_model_tokens)
  end)

  it("warns about an action that nothing asks about", function()
    local _, warnings = normalise { permissions = { ["deploy.prod"] = "deny" } }
    assert.matches("no part of this version asks about the action 'deploy.prod'", warnings[1])
  end)
end)

describe("an allowed path", function()
  local good = { ["src/**"] = "src/**", ["src/"] = "src/**", ["README.md"] = "README.md",
    ["a/b/c.txt"] = "a/b/c.txt", [".github/**"] = ".github/**", ["app/[id].tsx"] = "app/[id].tsx",
    ["a..b"] = "a..b", ["ä/ö"] = "ä/ö" }
  for path, normal in pairs(good) do
    it(("'%s' is taken"):format(path), function()
      local problem, got = manifest.path_problem(path)
      assert.is_nil(problem)
      assert.equal(normal, got)
    end)
  end
  local bad = { "/", "/etc", "//", "**", "/**", "./**", ".", "..", "../x", "a/../b", "a/..", "a//b", "./a",
    "a/.", "a/./b", "*", "a*", "a/*", "a/*/b", "a/**/b", "**/b", "?", "a?", "a,b", "a\\b", ("x"):rep(256),
    "/**/", "a/**/" }
  for _, path in ipairs(bad) do
    it(("'%s' is refused"):format(path:sub(1, 20)), function()
      assert.is_string((manifest.path_problem(path)))
    end)
  end
end)

describe("a run without a manifest", function()
  it("has one made from its goal", function()
    local m = manifest.generate("\n  Fix the test.  \nThen stop.", { "src/**", "a.txt" })
    assert.equal("adhoc", m.id)
    assert.equal("Fix the test.", m.title)
    assert.is_true(m.generated)
    assert.same({ "src/**", "a.txt" }, { table.unpack(m.allowed_paths) })
    assert.same({}, m.permissions)
  end)

  it("cuts a long title between characters", function()
    local m = manifest.generate(("ä"):rep(200), {})
    assert.is_truthy(utf8.len(m.title))
    assert.is_true(#m.title <= 121)
  end)

  it("is refused with a default path that could not be named", function()
    assert.matches("is absolute", sandbox.refusal(manifest.generate, "x", { "/etc" }))
  end)
end)

describe("compiling", function()
  local operator = { name = "op", predicates = false, rules = json.array {
    { id = "read", effect = "allow", actions = json.array { "fs.read" }, match = "any",
      patterns = json.array {} },
  } }
  local function run(changes, in_workspace, rules)
    return compile.run { profile = require "profiles.run-v1", policy = rules or operator,
      manifest = document(changes), goal = "",
      marks = { ["permissions"] = 9, [""] = 1 }, allowed = json.array {}, in_workspace = in_workspace }
  end
  local function ids(result)
    local list = {}
    for _, rule in ipairs(result.table.rules) do
      if rule.source == 2 then list[#list + 1] = rule.id .. "=" .. rule.effect end
    end
    return list
  end
  local permissions = { ["process.exec"] = { ["git *"] = "allow", ["rm *"] = "deny" }, ["fs.read"] = "allow",
    ["fs.write"] = { ["*"] = "ask" } }

  it("names rules after action and pattern, and adds the fallback of a map without '*'", function()
    local result = run { permissions = permissions }
    assert.same({ "manifest:fs.read=allow", "manifest:fs.write:*=ask", "manifest:process.exec:git *=allow",
      "manifest:process.exec:rm *=deny" }, ids(result))
    assert.same({ { id = "manifest:process.exec:unmatched", source = 2, action = "process.exec",
      effect = "deny" } }, { table.unpack(result.table.fallbacks) })
  end)

  it("leaves the allows of a manifest in the workspace out and says so", function()
    local result = run({ permissions = permissions }, true)
    assert.same({ "manifest:fs.write:*=ask", "manifest:process.exec:rm *=deny" }, ids(result))
    assert.equal(1, #result.table.fallbacks)
    assert.equal(2, #result.warnings)
    assert.matches("^'manifest:fs.read' is not counted: .* outside of the workspace$", result.warnings[1])
    assert.matches("now 'manifest:process.exec:unmatched': deny", result.warnings[2])
  end)

  it("gives a refusal the line of its path or of the nearest one above", function()
    local result = run { permissions = { ["fs.write"] = "no" } }
    assert.equal("INVALID_MANIFEST", result.error.code)
    assert.equal(9, result.error.line)
    assert.equal(1, run({ titel = "x" }).error.line)
    assert.equal("INVALID_ALLOWED_PATH", run({ allowed_paths = json.array { "/x" } }).error.code)
  end)

  it("checks again what a policy state exported", function()
    local function with(changes)
      local rule = { id = "x", effect = "deny", actions = json.array { "fs.read" }, match = "path",
        patterns = json.array { "a" } }
      for key, value in pairs(changes) do rule[key] = value end
      return run({}, false, { name = "op", rules = json.array { rule } })
    end
    assert.is_nil(with({}).error)
    assert.is_table(with({ effect = "permit" }).error)
    assert.is_table(with({ actions = json.array {} }).error)
    assert.is_table(with({ patterns = json.array {} }).error)
  end)

  it("keeps ids apart and within the table's limit", function()
    local long = ("x"):rep(1000)
    local result = run { permissions = { ["fs.write"] = { [long .. "a"] = "deny", [long .. "b"] = "deny" } } }
    local list = ids(result)
    assert.equal(2, #list)
    assert.are_not.equal(list[1], list[2])
    for _, rule in ipairs(result.table.rules) do assert.is_true(#rule.id <= 255) end
  end)
end)
