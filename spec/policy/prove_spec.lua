--- What the compiler proves of rules: each diagnostic with its code, file, line and suggestion, and
--- beside each a bundle that is not to get it.
package.path = (os.getenv("BRIDLE_SOURCE") or ".") .. "/spec/support/?.lua;" .. package.path
local sandbox = require "sandbox"
local compile = require "bridle.compile"
local policy = require "bridle.policy"
local profile = require "bridle.profile"

--- A profile that denies nothing, so that only what is tested is found.
local open = profile.load(require "profiles.run-v1")
open.rules = {}

--- As it arrives in the state that compiles.
local function exported(bundle)
  local data = policy.export(bundle)
  for _, rule in ipairs(data.rules) do
    local accepted
    for _, code in ipairs(rule.accepted or {}) do
      accepted = accepted or {}
      accepted[code] = true
    end
    rule.accepted = accepted
  end
  return data
end

local function compiled(text, with, more)
  local data = exported(sandbox.policy(("return policy.bundle { api = 1, name = 'b', %s rules = {\n%s } }")
    :format(more or "", text)))
  return compile.run { profile = with or open, policy = data, goal = "g", allowed = {}, in_workspace = false }
end

--- Nothing is said of these rules.
local function silent(text, with, more)
  local result = compiled(text, with, more)
  assert.is_nil(result.error and result.error.text)
  assert.same({}, { table.unpack(result.warnings) })
end

local function fails(code, pattern, text, more)
  local result = compiled(text, nil, more)
  assert.is_table(result.error, "nothing was refused: " .. text)
  assert.equal("INVALID_POLICY", result.error.code)
  assert.matches("%[" .. code:gsub("%-", "%%-") .. "%]", result.error.text)
  assert.matches(pattern, result.error.text)
  assert.matches("^policy.lua:%d+: ", result.error.text)
  assert.is_true(result.error.line > 0)
end

local function warns(code, pattern, text, with)
  local result = compiled(text, with)
  assert.is_nil(result.error and result.error.text)
  assert.equal(1, #result.warnings, table.concat(result.warnings, "\n") .. " for " .. text)
  assert.matches("^policy.lua:%d+: %[" .. code:gsub("%-", "%%-") .. "%] rule '", result.warnings[1])
  assert.matches(pattern, result.warnings[1])
end

local function rule(effect, id, action, rest)
  return ("policy.%s { id = '%s', action = '%s', %s },\n"):format(effect, id, action, rest or "")
end

describe("a dead rule", function()
  --- Effects and matchers of the stricter rule and of the one that it covers.
  local covered = {
    { "fs.read", "", "" },
    { "fs.read", "", "path = 'a'" },
    { "fs.read", "path = '**'", "path = 'a/*'" },
    { "fs.read", "path = 'src/**'", "path = 'src/a/*.c'" },
    { "fs.read", "path = 'src/**'", "path = 'src'" },
    { "fs.read", "path = 'src/**'", "path = 'src/**'", "contradictory-rules" },
    { "fs.read", "path = '**/.env'", "path = '.env'" },
    { "fs.read", "path = '**/.env'", "path = 'a/.env'" },
    { "fs.read", "path = '**/.env'", "path = 'a/**/.env'" },
    { "process.exec", "", "command = 'ls'" },
    { "process.exec", "command = '*'", "command = 'ls *'" },
    { "process.exec", "command = 'git *'", "command = 'git status'" },
    { "process.exec", "command = 'git*'", "command = 'gitk *'" },
    { "process.exec", "command = '*'", "command = policy.command { 'git' }" },
    { "process.exec", "command = policy.command { 'git' }", "command = policy.command { 'git', 'log' }" },
    { "process.exec", "command = policy.command { 'git', { 'log', 'show' } }",
      "command = policy.command { 'git', 'log', flags = '--stat' }" },
    { "process.exec", "command = policy.command { 'rm', flags = { { '-r', '-R' } } }",
      "command = policy.command { 'rm', flags = { { '-r' }, { '-f' } } }" },
    { "process.exec", "command = policy.command { 'git', 'push' }", "command = 'git push *'" },
    { "process.exec", "command = policy.command { { 'a', 'b' } }",
      "command = policy.command { { 'b', 'a' }, 'x' }" },
    { "network", "host = '*.example.com'", "host = 'api.example.com:443'" },
    { "network", "host = 'api*'", "host = 'api.example.com'" },
    { "network", "", "host = '*'" },
    { "deploy", "text = 'prod*'", "text = 'prod-1'" },
  }
  local more = "actions = { 'deploy' },"
  for _, case in ipairs(covered) do
    for _, effect in ipairs { "ask", "deny" } do
      it(("allows %s, under a rule that %ss %s"):format(case[3], effect, case[2]), function()
        local text = rule("allow", "loose", case[1], case[3]) .. rule(effect, "strict", case[1], case[2])
        fails(case[4] or (case[2] == case[3] and "contradictory-rules") or "dead-rule",
          "rule 'loose' .*rule 'strict' %(policy.lua:4%)", text, more)
      end)
    end
    it(("asks about %s, under a denial of %s"):format(case[3], case[2]), function()
      fails(case[4] or (case[2] == case[3] and "contradictory-rules") or "dead-rule", "rule 'loose'",
        rule("ask", "loose", case[1], case[3]) .. rule("deny", "strict", case[1], case[2]), more)
    end)
  end

  --- Near to what is covered, and not covered.
  for _, case in ipairs {
    { "fs.read", "path = 'src/*'", "path = 'src/a/b'" },
    { "fs.read", "path = 'src/**'", "path = 'src2/a'" },
    { "fs.read", "path = '**/.env'", "path = 'a.env'" },
    { "fs.read", "path = '*'", "path = 'a/*'" },
    { "process.exec", "command = 'git *'", "command = 'git'" },
    { "process.exec", "command = 'git *'", "command = policy.command { 'git', 'log' }" },
    { "process.exec", "command = policy.command { 'git', 'push' }", "command = 'git push*'" },
    { "process.exec", "command = policy.command { 'git', 'push' }", "command = 'git -C x push'" },
    { "process.exec", "command = policy.command { 'git', 'log' }",
      "command = policy.command { 'git', { 'log', 'show' } }" },
    { "process.exec", "command = policy.command { 'git', without = '-f' }",
      "command = policy.command { 'git', 'log' }" },
    { "process.exec", "command = policy.command { 'rm', arguments = '/*' }",
      "command = policy.command { 'rm', flags = '-i' }" },
    { "process.exec", "command = policy.command { 'rm', flags = '-r' }",
      "command = policy.command { 'rm', flags = { { '-r', '-f' } } }" },
    { "process.exec", "command = policy.command { 'a' }", "command = policy.command { { 'a', 'b' }, 'x' }" },
    { "network", "host = '*.example.com'", "host = 'example.com'" },
    { "network", "host = '*.example.com:443'", "host = 'api.example.com'" },
  } do
    it(("is not one that allows %s, under a denial of %s"):format(case[3], case[2]), function()
      silent(rule("allow", "loose", case[1], case[3]) .. rule("deny", "strict", case[1], case[2]))
    end)
  end

  it("is covered for every action by a rule of all actions", function()
    fails("dead-rule", "rule 'strict'", rule("allow", "a", "fs.read", "path = 'a'") .. rule("deny",
      "strict", "*"))
  end)

  it("is seen through conditions only where they are the same", function()
    local loose = rule("allow", "loose", "fs.read", "path = 'a', when = { tool = 'fs_read' }")
    fails("dead-rule", "rule 'strict'", loose .. rule("deny", "strict", "fs.read"))
    silent(rule("allow", "loose", "fs.read", "path = 'a'")
      .. rule("deny", "strict", "fs.read", "when = { tool = 'fs_read' }"))
    fails("dead-rule", "rule 'strict'", "policy.group { when = { model = 'm' },\n"
      .. rule("allow", "loose", "fs.read", "path = 'a'") .. rule("deny", "strict", "fs.read") .. "}")
  end)

  it("names how to keep both", function()
    fails("dead-rule", "write it with policy.otherwise", rule("allow", "a", "process.exec", "command = 'ls'")
      .. rule("ask", "rest", "process.exec"))
    silent(rule("allow", "a", "process.exec", "command = 'ls'")
      .. "policy.otherwise { id = 'rest', action = 'process.exec' }")
  end)

  for name, when in pairs {
    budget = "{ budget = { calls = { used_over = 5, used_under = 6 } } }",
    ["nothing left"] = "{ budget = { asks = { left_under = 0 } } }",
  } do
    it("can have an impossible " .. name, function()
      fails("dead-rule", "can never match: no count", rule("deny", "a", "fs.read", "when = " .. when))
    end)
  end

  it("can want two tools at once", function()
    fails("dead-rule", "two different values of 'tool'", "policy.group { when = { tool = 'fs_read' },\n"
      .. rule("deny", "a", "fs.write", "when = { tool = { 'fs_write', 'fs_edit' } }") .. "}")
    silent("policy.group { when = { tool = 'fs_write' },\n"
      .. rule("deny", "a", "fs.write", "when = { tool = { 'fs_write', 'fs_edit' } }") .. "}")
  end)

  it("can want a flag and not want it", function()
    fails("dead-rule", "the flag '%-f' both there and not there", rule("deny", "a", "process.exec",
      "command = policy.command { 'rm', flags = '-f', without = { '-f', '-r' } }"))
  end)

  it("refuses the bundle whole, and says how many more there are", function()
    local result = compiled(rule("allow", "a", "fs.read", "path = 'a'") .. rule("allow", "b", "fs.read",
      "path = 'b'")
      .. rule("deny", "c", "fs.read"))
    assert.is_nil(result.table)
    assert.matches("rule 'a' .* %(and 1 more%)$", result.error.text)
    assert.equal(3, result.error.line)
  end)

  it("under an extended bundle is told to replace what can be replaced", function()
    fails("dead-rule", "rule 'network' .* of the bundle 'denials' denies all of it.* copy the bundle",
      rule("allow", "mine", "network", "host = 'a.example'"), "extend = 'default',")
    silent(rule("allow", "mine", "process.exec", "command = 'make test'"), nil, "extend = 'default',")
    silent(rule("deny", "mine", "fs.read"), nil, "extend = 'default',") -- what is extended may be tightened
  end)
end)

describe("a warning", function()
  it("is given for a pattern that never decides beside others that do", function()
    warns("dead-pattern", "1 of 2 patterns", rule("allow", "a", "fs.read", "path = { 'a', 'b' }")
      .. rule("deny", "b", "fs.read", "path = 'b'"))
  end)

  it("is given for rules that say the same", function()
    warns("duplicate-rule", "rule 'b' says what rule 'a' %(policy.lua:3%) says",
      rule("deny", "a", "fs.read", "path = 'a'") .. rule("deny", "b", "fs.read", "path = 'a'"))
    warns("shadowed-rule", "rule 'a' adds nothing: rule 'b' ", rule("allow", "a", "fs.read", "path = 'a'")
      .. rule("allow", "b", "fs.read"))
    silent(rule("deny", "a", "fs.read", "path = 'a', reason = 'of its own'") .. rule("deny", "b", "fs.read"))
  end)

  for _, case in ipairs {
    { "process.exec", "", "allows every command" },
    { "process.exec", "command = '*'", "allows every command" },
    { "process.exec", "command = { 'ls', '* --version' }", "allows other programs" },
    { "process.exec", "command = 'git*'", "begins with 'git', .*write 'git' and 'git %*'" },
    { "process.exec", "command = 'sh'", "allows 'sh', which runs whatever" },
    { "process.exec", "command = 'python3 *'", "such as 'python3 %-m pytest %*'" },
    { "process.exec", "command = 'lua5.4 *'", "such as 'lua5.4 FILE %*'" },
    { "process.exec", "command = 'timeout *'", "write a rule for the command behind it" },
    { "process.exec", "command = 'python3 *'", "allows 'python3'" },
    { "process.exec", "command = 'bash -c *'", "allows 'bash'" },
    { "process.exec", "command = '/usr/bin/env *'", "allows '/usr/bin/env'" },
    { "process.exec", "command = policy.command { 'node' }", "allows 'node'" },
    { "process.exec", "command = policy.command { 'git*' }", "matches 'git%*'" },
    { "network", "", "allows every connection" },
    { "network", "host = '*'", "allows every connection" },
    { "fs.write", "", "allows every file" },
    { "fs.write", "path = '**'", "allows every file" },
    { "*", "", "allows every action" },
  } do
    it(("is given for an allow of %s %s"):format(case[1], case[2]), function()
      warns("over-broad", case[3], rule("allow", "a", case[1], case[2]))
      silent(rule("allow", "a", case[1],
        case[2] .. (case[2] ~= "" and "," or "") .. " accept = 'over-broad'"))
      silent(rule("deny", "a", case[1], case[2]))
    end)
  end

  for _, text in ipairs { "command = 'git *'", "command = 'python3 -m pytest *'", "command = 'make'",
    "command = policy.command { 'node', 'test.js' }",
      "command = policy.command { 'sh', arguments = 'build.sh' }" } do
    it("is not given for an allow of " .. text, function()
      silent(rule("allow", "a", "process.exec", text))
    end)
  end
  it("is not given for reads, which are harmless inside of a workspace", function()
    silent(rule("allow", "a", "fs.read"))
  end)

  it("is given for what the profile does not have", function()
    local shut = profile.load(require "profiles.run-v1")
    warns("unrepresentable", "'run%-v1': .*no network", rule("allow", "a", "network", "host = 'a.example'"),
      shut)
    silent(rule("allow", "a", "network", "host = 'a.example', accept = 'unrepresentable'"), shut)
    silent(rule("deny", "a", "network"), shut)
    local cell = profile.load(require "profiles.observer-v1")
    cell.rules = {}
    cell.launch.workspace = "none"
    warns("unrepresentable", "no workspace", rule("ask", "a", "fs.write"), cell)
  end)

  it("is given for actions and tools that nobody asks about", function()
    warns("unasked-action", "asks about the action 'git.push'", rule("deny", "a", "git.push"))
    warns("unknown-tool", "'fs_reed', which there is not; did you mean 'fs_read'%?",
      rule("deny", "a", "fs.read", "when = { tool = 'fs_reed' }"))
    silent(rule("deny", "a", "fs.read", "when = { tool = { 'fs_read', 'mcp_*' } }"))
  end)

  it("is given for an acceptance that nothing needs", function()
    warns("unneeded-accept", "accepts the warning 'over%-broad'",
      rule("allow", "a", "process.exec", "command = 'ls', accept = 'over-broad'"))
  end)
end)

describe("the shipped bundles", function()
  it("have nothing that is dead, broad or double", function()
    local bundle = assert(load(sandbox.read("policy/default.lua"), "@default.lua", "t"))()
    local result = compile.run { profile = profile.load(require "profiles.run-v1"),
      policy = exported(bundle),
      goal = "g", allowed = {}, in_workspace = false }
    assert.is_nil(result.error and result.error.text)
    assert.same({}, { table.unpack(result.warnings) })
  end)
end)
