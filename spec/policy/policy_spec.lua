package.path = (os.getenv("BRIDLE_SOURCE") or ".") .. "/spec/support/?.lua;" .. package.path
local sandbox = require "sandbox"
local policy = require "bridle.policy"

local function rule(fields) return policy.ask(fields) end

describe("a rule", function()
  it("is a value that says what it is and cannot be changed", function()
    local r = policy.deny { id = "no-rm", action = "process.exec", command = "rm *", reason = "use git" }
    assert.equal("no-rm", r.id)
    assert.equal("deny", r.effect)
    assert.equal("command", r.match)
    assert.equal("use git", r.reason)
    assert.has_error(function() r.effect = "allow" end, "rule 'no-rm' cannot be changed")
    assert.equal("deny", r.effect)
  end)

  local cases = {
    { "no table", 7, "policy.ask takes a table, not a number" },
    { "no id", { action = "fs.read" }, "needs an id" },
    { "an id with blanks", { id = "no rm", action = "fs.read" }, "the id 'no rm' must be lower%-case" },
    { "an id that is too long", { id = ("a"):rep(65), action = "fs.read" }, "at most 64" },
    { "an empty list of actions", { id = "a", action = {} }, "needs an action" },
    { "a misspelt field", { id = "a", action = "fs.read", pahts = "x" },
      "'pahts' is not a field of policy.ask; did you mean 'path'%?" },
    { "a misspelt action", { id = "a", action = "fs.raed" }, "did you mean 'fs.read'%?" },
    { "a positional field", { "x", id = "a", action = "fs.read" }, "named fields" },
    { "two matchers", { id = "a", action = "fs.read", path = "a", text = "b" }, "one rule has one matcher" },
    { "a command for a path", { id = "a", action = "fs.read", command = "ls" }, "use 'path'" },
    { "a path for a command", { id = "a", action = "process.exec", path = "a" }, "use 'command'" },
    { "a pattern that is a number", { id = "a", action = "fs.read", path = 7 }, "a text or a list of texts" },
    { "an empty pattern", { id = "a", action = "fs.read", path = "" }, "it is empty" },
    { "a pattern that is too long", { id = "a", action = "fs.read", path = ("a"):rep(1025) }, "longer than" },
    { "an absolute path", { id = "a", action = "fs.read", path = "/etc/*" }, "relative to the workspace" },
    { "a path upwards", { id = "a", action = "fs.read", path = "a/../b" }, "never has the segment '%.%.'" },
    { "a directory", { id = "a", action = "fs.read", path = "a/" }, "written 'a/%*%*'" },
    { "a shell list", { id = "a", action = "process.exec", command = "a; b" }, "simple command" },
    { "a URL", { id = "a", action = "network", host = "https://x" }, "name the host alone" },
    { "a reason of two lines", { id = "a", action = "fs.read", reason = "a\nb" }, "one line" },
  }
  for _, case in ipairs(cases) do
    it("is refused with " .. case[1], function()
      assert.matches(case[3], sandbox.refusal(rule, case[2]))
    end)
  end

  it("takes a pattern of the longest length", function()
    assert.equal("path", rule({ id = "a", action = "fs.read", path = ("a"):rep(1024) }).match)
  end)

  it("is refused at its own line", function()
    local message = sandbox.refusal(sandbox.policy, "local x\npolicy.deny {\n  id = 'A' }")
    assert.matches("^policy.lua:3: ", message)
  end)
end)

describe("a bundle", function()
  local function bundle(fields)
    local base = { api = 1, name = "b", rules = {} }
    for key, value in pairs(fields) do base[key] = value end
    return policy.bundle(base)
  end
  local a = policy.allow { id = "a", action = "fs.read" }
  local b = policy.deny { id = "b", action = "process.exec", command = { "rm *", "dd *" } }

  it("exports its rules, nested lists included, as data", function()
    local data = policy.export(bundle { rules = { a, { { b } } } })
    assert.equal("b", data.name)
    assert.is_false(data.predicates)
    assert.equal(2, #data.rules)
    assert.same({ "rm *", "dd *" }, { table.unpack(data.rules[2].patterns) })
    assert.equal("any", data.rules[1].match)
  end)

  it("is refused whole when an id comes twice, with both lines", function()
    local message = sandbox.refusal(sandbox.policy, [[
      return policy.bundle { api = 1, name = "b", rules = {
        policy.ask { id = "x", action = "fs.read" },
        policy.ask { id = "x", action = "fs.write" } } }]])
    assert.matches("^policy.lua:4: rule 'x': the id is used in line 3 already", message)
  end)

  it("knows actions of its own only when it declares them", function()
    local own = policy.ask { id = "own", action = "deploy.prod" }
    assert.matches("declare one of your own", sandbox.refusal(bundle, { rules = { own } }))
    assert.equal(1, #policy.export(bundle { rules = { own }, actions = { "deploy.prod" } }).rules)
    assert.matches("too near to 'fs.read'", sandbox.refusal(bundle, { actions = { "fs.reads" } }))
  end)

  local cases = {
    { "another api", { api = 2 }, "api = 1, not 2" },
    { "no name", { name = false }, "needs an id" },
    { "a misspelt field", { ruels = {} }, "did you mean 'rules'%?" },
    { "a rule that is no rule", { rules = { { id = "a" } } }, "a named field or a gap" },
    { "a text as a rule", { rules = { "deny" } }, "element 1 of 'rules' is a string, not a rule" },
    { "a gap", { rules = { [1] = a, [3] = b } }, "a named field or a gap" },
    { "a check that is no function", { check = "deny" }, "'check' must be a function" },
  }
  for _, case in ipairs(cases) do
    it("is refused with " .. case[1], function()
      assert.matches(case[3], sandbox.refusal(bundle, case[2]))
    end)
  end

  it("cannot be a table of the operator's making", function()
    assert.matches("must end with 'return policy.bundle", sandbox.refusal(policy.export, { rules = {} }))
    assert.matches("the policy returned nothing", sandbox.refusal(policy.export, nil))
  end)

  it("takes at most 10000 rules", function()
    local many = {}
    for i = 1, 10001 do many[i] = policy.ask { id = "r" .. i, action = "fs.read" } end
    assert.matches("more than 10000 rules", sandbox.refusal(bundle, { rules = many }))
    many[10001] = nil
    assert.equal(10000, #policy.export(bundle { rules = many }).rules)
  end)
end)

describe("a predicate", function()
  local function vote(result, reason)
    local bundle = policy.bundle { api = 1, name = "p", rules = {},
      check = function() return result, reason end }
    return policy.vote(bundle, { action = "x" })
  end

  it("can tighten", function()
    assert.same({ "deny", "because", "check" }, { vote("deny", "because") })
    assert.same({ "ask", nil, "check" }, { vote("ask") })
  end)

  it("can never loosen", function()
    assert.is_nil(vote(nil))
    assert.matches("returned 'allow'.*to allow, write a rule", sandbox.refusal(vote, "allow"))
  end)

  it("is an error when it says anything else", function()
    for _, odd in ipairs { "Deny", "", 1, true, false, {} } do
      assert.matches("the function of the check 'check' returned", sandbox.refusal(vote, odd))
    end
    assert.matches("is a number, not a text", sandbox.refusal(vote, "deny", 7))
  end)
end)

describe("the shipped policy", function()
  it("compiles and has a rule for each kind of effect", function()
    local data = policy.export(assert(load(sandbox.read("policy/default.lua"), "@default.lua", "t"))())
    local effects = {}
    for _, r in ipairs(data.rules) do effects[r.effect] = (effects[r.effect] or 0) + 1 end
    assert.equal("default", data.name)
    assert.is_true(effects.allow > 0 and effects.ask > 0 and effects.deny > 0)
  end)
end)

describe("the nearest word", function()
  local nearest = require "bridle.nearest"

  it("counts a swap of neighbours as one edit", function()
    assert.equal(1, nearest.distance("exce", "exec"))
    assert.equal(3, nearest.distance("kitten", "sitting"))
    assert.equal(0, nearest.distance("", ""))
    assert.equal(4, nearest.distance("", "four"))
  end)

  it("is none when nothing is near", function()
    assert.is_nil(nearest.word("zzzz", { "fs.read", "network" }))
    assert.is_nil(nearest.word(("x"):rep(65), { ("x"):rep(65) }))
    assert.equal("; known are 'a', 'b'", nearest.hint("zzzz", { "b", "a" }))
  end)
end)
