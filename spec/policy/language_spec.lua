--- What the language makes of structured commands, conditions, groups, checks and bundles that
--- extend others; what it refuses, and with which words. What they match is tested in C.
package.path = (os.getenv("BRIDLE_SOURCE") or ".") .. "/spec/support/?.lua;" .. package.path
local sandbox = require "sandbox"
local policy = require "bridle.policy"

local function bundle(rules, more)
  local fields = { api = 1, name = "b", rules = rules }
  for key, value in pairs(more or {}) do fields[key] = value end
  return policy.bundle(fields)
end
local function export(rules, more) return policy.export(bundle(rules, more)) end

local function plain(list)
  local out = {}
  for i, v in ipairs(list) do out[i] = type(v) == "table" and plain(v) or v end
  return out
end

describe("a command", function()
  it("is shown as it is read", function()
    assert.equal("git push", policy.command { "git", "push" }.shown)
    assert.equal("npm|pnpm run test*", policy.command { { "npm", "pnpm" }, "run", "test*" }.shown)
    assert.equal("rm -r|-R -f|--force without --preserve-root with /*|~*",
      policy.command { "rm", flags = { { "-r", "-R" }, { "-f", "--force" } }, without = "--preserve-root",
        arguments = { "/*", "~*" } }.shown)
  end)

  it("stands beside patterns, and several of them in one rule", function()
    local rule = export { policy.deny { id = "a", action = "process.exec",
      command = { "dd *", policy.command { "rm" }, policy.command { { "su", "sudo" } } } } }.rules[1]
    assert.same({ "dd *" }, plain(rule.patterns))
    assert.equal(2, #rule.commands)
    assert.same({ "su", "sudo" }, plain(rule.commands[2].programs))
  end)

  it("cannot be changed", function()
    assert.has_error(function() policy.command { "git" }.shown = "x" end, "a command cannot be changed")
  end)

  for _, case in ipairs {
    { "no table", "git push", "takes a table, not a string" },
    { "nothing", {}, "needs a program" },
    { "words in one text", { "git push" }, "write each word on its own" },
    { "an option as a word", { "git", "-C", "push" }, "'%-C' is an option; options go into flags" },
    { "an option as the program", { "-x" }, "is an option" },
    { "a directory", { "/usr/bin/" }, "is a directory" },
    { "a wildcard in a path", { "/usr/bin/*" }, "a path has no wildcards" },
    { "a misspelt field", { "rm", flag = "-f" }, "did you mean 'flags'%?" },
    { "a gap", { "rm", [3] = "x" }, "without gaps" },
    { "an empty list of words", { "git", {} }, "a word of policy.command is a text" },
    { "a number", { "git", 7 }, "a word of policy.command is a text" },
    { "too many words", { "a", "1", "2", "3", "4", "5", "6", "7", "8", "9" }, "at most 8 words" },
    { "flags that leave open how many", { "rm", flags = { "-r", "-f" } }, "whether it wants one or both" },
    { "two flags in one", { "rm", flags = "-rf" }, "looks like two; write { '%-r' }, { '%-f' }" },
    { "a flag without a dash", { "rm", flags = "force" }, "must begin with '%-'" },
    { "a flag with a value", { "git", flags = "--a=b" }, "without its value" },
    { "the end of options as a flag", { "git", flags = "--" }, "must begin with '%-'" },
    { "no flags", { "rm", flags = {} }, "'flags' is a list of groups" },
    { "an empty group", { "rm", flags = { {} } }, "a group of 'flags'" },
    { "without that is no list", { "rm", without = 7 }, "'without' is a flag or a list" },
    { "empty arguments", { "rm", arguments = {} }, "'arguments' is a pattern or a list" },
    { "an empty argument", { "rm", arguments = { "" } }, "'arguments' is a pattern or a list" },
  } do
    it("is refused with " .. case[1], function()
      assert.matches(case[3], sandbox.refusal(policy.command, case[2]))
    end)
  end

  it("is for commands alone", function()
    local c = policy.command { "git" }
    assert.matches("use 'path'", sandbox.refusal(policy.deny, { id = "a", action = "fs.read", command = c }))
    assert.matches("must be a text or a list", sandbox.refusal(policy.deny, { id = "a", action = "fs.read",
      path = c }))
    assert.matches("is a command, not a rule", sandbox.refusal(bundle, { c }))
  end)

  it("is refused at its own line", function()
    assert.matches("^policy.lua:3: ", sandbox.refusal(sandbox.policy,
      "local x\npolicy.command {\n  'git push' }"))
  end)
end)

describe("a condition", function()
  local function when(fields)
    return policy.export(bundle { policy.ask { id = "a", action = "fs.read", when = fields } }).conditions[1]
  end

  it("is put into the form of the table", function()
    assert.same({ "fs_*" }, plain(when { tool = "fs_*" }.tool))
    assert.same({ "A", "B=*" }, plain(when { env = { "A", "B=*" } }.env))
    assert.same({ days = 31, from = 540, to = 1020 },
      when { time = { days = "mon-fri", from = "09:00", to = "17:00" } }.time)
    assert.same({ days = 65, from = 0, to = 1440, zone = 0 },
      when { time = { days = { "mon", "sun" }, zone = "utc" } }.time)
    assert.same({ days = 127, from = 1320, to = 360, zone = -90 },
      when { time = { from = "22:00", to = "06:00", zone = "-01:30" } }.time)
    assert.equal(0x61, when { time = { days = "sat-mon" } }.time.days)
    assert.same({ { counter = "calls", value = "used", is = "over", limit = 50 },
      { counter = "asks", value = "left", is = "under", limit = 3 } },
      when { budget = { calls = { used_over = 50 }, asks = { left_under = 3 } } }.budget)
  end)

  for _, case in ipairs {
    { "no table", "tool", "'when' is a table of conditions" },
    { "nothing in it", {}, "'when' is a table of conditions" },
    { "a misspelt field", { tools = "x" }, "did you mean 'tool'%?" },
    { "a tool that is a number", { tool = 7 }, "'tool' of 'when' is a pattern" },
    { "an empty list", { model = {} }, "'model' of 'when' is a pattern" },
    { "a time that is a text", { time = "09:00" }, "'time' is a table" },
    { "a misspelt field of time", { time = { form = "09:00" } }, "did you mean 'from'%?" },
    { "half a time", { time = { from = "09:00" } }, "'from' and 'to', or neither" },
    { "no time", { time = {} }, "needs 'days', or 'from' and 'to'" },
    { "an hour that is none", { time = { from = "24:01", to = "25:00" } }, "texts from '00:00'" },
    { "an hour of one digit", { time = { from = "9:00", to = "17:00" } }, "texts from '00:00'" },
    { "the same minute", { time = { from = "09:00", to = "09:00" } }, "the same minute" },
    { "a misspelt day", { time = { days = "thr" } }, "'thr' is not a day; did you mean 'thu'%?" },
    { "a zone that is none", { time = { days = "mon", zone = "CET" } }, "'local', 'utc' or an offset" },
    { "a zone out of this world", { time = { days = "mon", zone = "+15:00" } },
      "'local', 'utc' or an offset" },
    { "a budget that is a number", { budget = 7 }, "'budget' is a table" },
    { "an empty budget", { budget = {} }, "'budget' is empty" },
    { "a misspelt counter", { budget = { call = { used_over = 1 } } }, "did you mean 'calls'%?" },
    { "a misspelt limit", { budget = { calls = { used_ower = 1 } } }, "did you mean 'used_over'%?" },
    { "a limit below zero", { budget = { calls = { used_over = -1 } } }, "not negative" },
    { "a limit with a fraction", { budget = { calls = { used_over = 1.5 } } }, "a whole number" },
  } do
    it("is refused with " .. case[1], function()
      assert.matches("rule 'a': .*" .. case[3],
        sandbox.refusal(policy.ask, { id = "a", action = "fs.read", when = case[2] }))
    end)
  end
end)

describe("a group", function()
  local a = policy.ask { id = "a" }
  local b = policy.deny { id = "b", action = "fs.write", reason = "own", when = { tool = "x" } }

  it("gives its rules what they lack, and adds its conditions", function()
    local data = export { policy.group { action = "fs.read", reason = "shared", when = { model = "m" }, a,
      { b } } }
    assert.same({ "fs.read" }, plain(data.rules[1].actions))
    assert.same({ "fs.write" }, plain(data.rules[2].actions))
    assert.equal("shared", data.rules[1].reason)
    assert.equal("own", data.rules[2].reason)
    assert.equal(2, #data.conditions)
    assert.same({ 1 }, plain(data.rules[1].when))
    assert.same({ 2, 1 }, plain(data.rules[2].when))
  end)

  it("nests, and leaves the rules as they were", function()
    local inner = policy.group { action = "fs.read", a }
    local data = export { policy.group { when = { tool = "x" }, policy.group { when = { tool = "y" },
      inner } } }
    assert.equal(2, #data.rules[1].when)
    assert.matches("it needs an action", sandbox.refusal(bundle, { a }))
  end)

  for _, case in ipairs {
    { "no table", 7, "takes a table" },
    { "no rules", { reason = "x" }, "holds no rules" },
    { "nothing that is shared", { a }, "shares nothing" },
    { "a misspelt field", { whenn = {}, a }, "did you mean 'when'%?" },
    { "an effect", { effect = "deny", a }, "'effect' is not a field" },
    { "a misspelt action", { action = "fs.raed", a }, "did you mean 'fs.read'%?" },
    { "a condition that is none", { when = {}, a }, "'when' is a table" },
    { "something that is no rule", { reason = "x", 7 }, "is a number, not a rule" },
    { "a check", { reason = "x", a, policy.check("c", function() end) }, "cannot be in a group" },
    { "an action that a rule's pattern is not for",
      { action = "fs.read", policy.ask { id = "c", command = "ls" } }, "rule 'c': .* use 'path'" },
  } do
    it("is refused with " .. case[1], function()
      assert.matches(case[3], sandbox.refusal(policy.group, case[2]))
    end)
  end
end)

describe("checks", function()
  local function says(id, effect) return policy.check(id, function() return effect, "of " .. id end) end

  it("are all asked, and the strictest counts, whatever their order", function()
    local list = { says("c", "ask"), says("a", "ask"), says("b", "deny"), says("d", nil), says("e", "deny") }
    assert.same({ "deny", "of b", "b" }, { policy.vote(bundle(list), {}) })
    assert.same({ "deny", "of b", "b" }, { policy.vote(bundle { list[5], list[3], list[1] }, {}) })
    assert.same({ "ask", "of a", "a" }, { policy.vote(bundle { list[1], { list[2] } }, {}) })
    assert.is_true(export(list).predicates)
    assert.is_false(export({}).predicates)
  end)

  it("have ids that differ, also from the bundle's 'check'", function()
    assert.matches("two checks with the id 'a'", sandbox.refusal(bundle, { says("a"), says("a") }))
    assert.matches("two checks with the id 'check'",
      sandbox.refusal(bundle, { says("check") }, { check = function() end }))
    assert.matches("the id 'A' must be", sandbox.refusal(policy.check, "A", print))
    assert.matches("a function of one request, not a string", sandbox.refusal(policy.check, "a", "deny"))
  end)
end)

describe("a bundle that extends", function()
  local mine = policy.allow { id = "tests", action = "process.exec", command = "make test" }

  it("has the other's rules as well, with where they were written", function()
    local data = export({ mine }, { extend = "default" })
    local own, theirs = 0, 0
    for _, rule in ipairs(data.rules) do
      if rule.bundle then
        theirs = theirs + 1
        assert.equal("policy/" .. rule.bundle .. ".lua", rule.file)
        assert.is_true(rule.line > 0)
      else
        own = own + 1
      end
    end
    assert.equal(1, own)
    assert.is_true(theirs > 5)
  end)

  it("replaces what allows or asks, by a rule of the same id", function()
    local read = policy.ask { id = "read", action = "fs.read" }
    assert.matches("the id is used by the bundle 'default' .*replace = { 'read' }",
      sandbox.refusal(bundle, { read }, { extend = "default" }))
    for _, rule in ipairs(export({ read }, { extend = "default", replace = "read" }).rules) do
      if rule.id == "read" then assert.equal("ask", rule.effect) end
    end
  end)

  it("has what two of them share once", function()
    local seen = {}
    for _, rule in ipairs(export({ mine }, { extend = { "denials", "harmless", "denials" } }).rules) do
      assert.is_nil(seen[rule.id])
      seen[rule.id] = rule
    end
    assert.equal("denials", seen["no-push"].bundle)
    for _, rule in ipairs(export({ mine }, { extend = "default" }).rules) do
      if rule.id == "no-push" then assert.equal("denials", rule.bundle) end
    end
  end)

  it("never drops a denial", function()
    local push = policy.allow { id = "no-push", action = "process.exec", command = "git push" }
    assert.matches("a denial cannot be replaced: copy the bundle",
      sandbox.refusal(bundle, { push }, { extend = "default", replace = "no-push" }))
    assert.matches("a rule that denies stays", sandbox.refusal(bundle, { push }, { extend = "default" }))
  end)

  for _, case in ipairs {
    { "a bundle that is not there", { extend = "defualt" },
      "there is no bundle 'defualt' to extend; did you mean 'default'%?" },
    { "a file", { extend = "./mine.lua" }, "other files are not read" },
    { "a number", { extend = 7 }, "'extend' is the name of a bundle" },
    { "two that clash", { extend = { "default", "strict" } }, "the id is used" },
    { "replacing without a rule", { extend = "default", replace = "read" },
      "no rule of this bundle has that id" },
    { "replacing what is not there", { extend = "default", replace = "tests" },
      "which no extended bundle has" },
    { "replacing nothing's", { replace = "tests" }, "which no extended bundle has" },
    { "a list of numbers", { extend = "default", replace = { 7 } }, "'replace' is a list of ids" },
  } do
    it("is refused with " .. case[1], function()
      assert.matches(case[3], sandbox.refusal(bundle, { mine }, case[2]))
    end)
  end
end)

describe("otherwise", function()
  it("is apart from the rules, and needs no more than an action", function()
    local data = export { policy.otherwise { id = "rest", action = { "fs.write", "network" }, reason = "r" } }
    assert.equal(0, #data.rules)
    assert.same({ "fs.write", "network" }, plain(data.otherwise[1].actions))
    assert.equal("r", data.otherwise[1].reason)
  end)

  it("is refused with a condition, a pattern, no action or no id", function()
    local rest = policy.otherwise { id = "rest", action = "fs.write" }
    assert.matches("has no conditions", sandbox.refusal(policy.group, { when = { tool = "x" }, rest }))
    assert.matches("'path' is not a field", sandbox.refusal(policy.otherwise,
      { id = "a", action = "fs.write", path = "a" }))
    assert.matches("needs an action", sandbox.refusal(policy.otherwise, { id = "a" }))
    assert.matches("needs an id", sandbox.refusal(policy.otherwise, { action = "fs.write" }))
  end)
end)

describe("programs of a bundle", function()
  it("are data of the table", function()
    local data = export({}, { programs = { mytool = { values = { "-C", "--dir" }, anywhere = true } } })
    assert.same({ "-C", "--dir" }, plain(data.programs.mytool.values))
    assert.is_true(data.programs.mytool.anywhere)
  end)

  for _, case in ipairs {
    { "a list", { "git" }, "the name of a program" },
    { "a path", { ["/bin/x"] = {} }, "the name of a program" },
    { "a misspelt field", { x = { vlaues = { "-C" } } }, "did you mean 'values'%?" },
    { "a word that is no option", { x = { values = { "C" } } }, "is no option" },
    { "an empty list", { x = { options = {} } }, "is a list of texts" },
    { "anywhere that is no boolean", { x = { anywhere = 1 } }, "is true or false" },
  } do
    it("are refused with " .. case[1], function()
      assert.matches(case[3], sandbox.refusal(bundle, {}, { programs = case[2] }))
    end)
  end
end)

describe("acceptance of a warning", function()
  it("names one that there is", function()
    local rule = export { policy.allow { id = "a", action = "process.exec", accept = "over-broad" } }.rules[1]
    assert.same({ "over-broad" }, plain(rule.accepted))
    assert.matches("there is no warning 'overbroad'; did you mean 'over%-broad'%?",
      sandbox.refusal(policy.allow,
      { id = "a", action = "process.exec", accept = "overbroad" }))
    assert.matches("'accept' of rule 'a' is a warning", sandbox.refusal(policy.allow,
      { id = "a", action = "process.exec", accept = true }))
  end)
end)
