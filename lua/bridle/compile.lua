--- Profile, operator's policy and manifest become one decision table (core/policy/policy.h). Runs in
--- a state of its own: what the operator's file did to the state it ran in does not reach here, and
--- what it exported is checked again.

local json = require "json"
local manifest = require "bridle.manifest"
local pattern = require "bridle.pattern"
local schema = require "bridle.schema"

local compile = {}

local EFFECTS = { "allow", "ask", "deny" }
local RULE = { id = true, effect = true, actions = true, match = true, patterns = true, reason = true,
  file = true, line = true }
local RULES_MAX = 10000
local ID_MAX = 255

--- Unique ids of at most ID_MAX bytes: the second rule of one name gets "#2", a long name is cut.
local function namer()
  local seen = {}
  return function(id)
    if #id > ID_MAX - 8 then id = id:sub(1, utf8.offset(id, 0, ID_MAX - 11) - 1) .. "..." end
    local count = (seen[id] or 0) + 1
    seen[id] = count
    if count == 1 then return id end
    return ("%s#%d"):format(id, count)
  end
end

--- Rules of profile or operator, spread to one action and one pattern each.
local function spread(source, kind, list, out, name)
  for _, rule in ipairs(list) do
    for key in pairs(rule) do
      if not RULE[key] then schema.fail("rule", ("'%s' is not a key of a rule"):format(key)) end
    end
    schema.word(rule.effect, "rule.effect", EFFECTS)
    schema.text(rule.id, "rule.id", 64)
    for _, action in ipairs(schema.list(rule.actions, "rule.actions", 1, 64)) do
      local patterns = rule.match == "any" and { "" }
        or schema.list(rule.patterns, "rule.patterns", 1, RULES_MAX)
      for _, p in ipairs(patterns) do
        if rule.match ~= "any" and pattern.problem(rule.match, p) then
          schema.fail("rule.patterns", ("the pattern of rule '%s' is refused"):format(rule.id))
        end
        out[#out + 1] = { id = name(kind .. ":" .. rule.id), source = source, action = action,
          match = rule.match, pattern = p, effect = rule.effect, reason = rule.reason,
          file = rule.file, line = rule.line }
      end
    end
  end
end

--- The lines of a refusal's path or of the nearest one above it.
local function line_of(marks, path)
  while path do
    if marks[path] then return marks[path] end
    if path == "" then return nil end
    path = path:match("^(.+)%.[%w_-]+$") or path:match("^(.*)%[[^%[%]]*%]$") or ""
  end
end

local function build(input, warn)
  local m
  if input.manifest ~= nil then
    m = manifest.normalise(input.manifest, warn)
  else
    m = manifest.generate(input.goal, input.allowed)
  end
  local sources = json.array({
    { kind = "profile", name = input.profile.name },
    { kind = "operator", name = input.policy.name },
    { kind = "manifest", name = m.id },
  })
  local rules, fallbacks, name = json.array({}), json.array({}), namer()
  spread(0, "profile", input.profile.rules, rules, name)
  spread(1, "operator", input.policy.rules, rules, name)
  local from, unmatched = manifest.rules(m, input.in_workspace, warn)
  for _, rule in ipairs(from) do
    rule.id, rule.source = name(rule.id), 2
    rules[#rules + 1] = rule
  end
  for i, fallback in ipairs(unmatched) do
    fallback.source = 2
    fallbacks[i] = fallback
  end
  if #rules > RULES_MAX then
    schema.fail("", ("policy and manifest make %d rules; at most %d are decided")
      :format(#rules, RULES_MAX), "INVALID_POLICY")
  end
  return { v = 2, sources = sources, rules = rules, fallbacks = fallbacks,
    predicates = input.policy.predicates == true }, m
end

--- input: profile (as profile.load gives it), policy (as policy.export gives it), manifest? and marks?
--- (parsed), goal, allowed, in_workspace. The result has table, manifest, warnings; or error {code,
--- text, line}.
---@param input table
---@return table
function compile.run(input)
  local warnings = json.array({})
  local function warn(text) warnings[#warnings + 1] = text end
  local tab, m = schema.catch(build, input, warn)
  if not tab then
    local failure = m
    return { error = { code = failure.code or "INVALID_MANIFEST", text = failure.message,
      line = line_of(input.marks or {}, failure.path) or 0 } }
  end
  return { table = tab, manifest = m, warnings = warnings }
end

return compile
