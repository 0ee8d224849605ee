--- Profile, operator's policy and manifest become one decision table (core/policy/policy.h). Runs in
--- a state of its own: what the operator's file did to the state it ran in does not reach here, and
--- what it exported is checked again.

local host = require "bridle.host"
local json = require "json"
local manifest = require "bridle.manifest"
local prove = require "bridle.prove"
local programs = require "bridle.programs"
local schema = require "bridle.schema"

local compile = {}

local RULES_MAX = 10000
local ID_MAX = 255
local ANY, NONE = { "" }, {}
local EFFECTS = { allow = true, ask = true, deny = true }

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

--- The part of a command that one program makes.
local function command_of(c, program)
  return { program = program, words = #c.words > 0 and json.array(c.words) or nil,
    flags = c.flags, without = c.without, arguments = c.arguments }
end

--- Conditions of the table. An environment that an allow names is all that it lives with.
local function conditions_of(list)
  local out, index = json.array({}), {}
  local function add(key, when)
    if not index[key] then
      out[#out + 1] = when
      index[key] = #out - 1
    end
    return index[key]
  end
  return out, function(whens, effect)
    if not whens then return nil end
    local indices = json.array({})
    for i, k in ipairs(whens) do
      local when = list[k]
      if when.env and effect == "allow" then
        indices[i] = add(-k, { tool = when.tool, model = when.model, env_only = when.env,
          time = when.time, budget = when.budget })
      else
        indices[i] = add(k, when)
      end
    end
    return indices
  end
end

--- The programs that rules speak of, with what is known of them and what the bundle adds.
local function programs_of(own, used)
  local out = json.array({})
  for _, name in ipairs(schema.keys(used)) do
    local known, added, merged = programs.of(name), own[name], nil
    for _, source in ipairs { known or {}, added or {} } do
      merged = merged or { name = name }
      for key, value in pairs(source) do
        if key == "anywhere" then
          merged.anywhere = value
        else
          merged[key] = merged[key] or json.array({})
          for _, text in ipairs(value) do merged[key][#merged[key] + 1] = text end
        end
      end
    end
    if known or added then out[#out + 1] = merged end
  end
  return out
end

--- Rules of profile or operator, spread to one action and one pattern each; the number of rules with
--- them. That they are well-formed is checked where they are made and again in C (core/policy/table.c),
--- which is what counts.
local function spread(source, kind, list, out, at, name, when_of, used)
  local row = host.row
  for i = 1, #list do
    local rule = list[i]
    local when, id, match, effect, reason = nil, kind .. ":" .. rule.id, rule.match, rule.effect, rule.reason
    local file, line, actions, patterns = rule.file, rule.line, rule.actions, rule.patterns
    local commands = rule.commands or NONE
    if rule.when then when = when_of(rule.when, effect) end
    if match == "any" then patterns = ANY end
    if not EFFECTS[effect] or #actions == 0 or #patterns + #commands == 0 then
      schema.fail("rules", ("the rule '%s' that was exported is none"):format(rule.id), "INVALID_POLICY")
    end
    for a = 1, #actions do
      local action = actions[a]
      for k = 1, #patterns do
        at = at + 1
        row(out, action, nil, effect, file, name(id), line, match, patterns[k], reason, source, when)
      end
      for k = 1, #commands do
        local c = commands[k]
        for _, program in ipairs(c.programs) do
          used[program:match("[^/]*$")] = true
          at = at + 1
          row(out, action, command_of(c, program), effect, file, name(id), line, "program", c.shown, reason,
            source, when)
        end
      end
    end
    if at > RULES_MAX + 1000 then return at end -- refused below
  end
  return at
end

--- What an operator's bundle asks about where no rule of its own speaks; its own before an
--- extended one's.
local function otherwise_of(list, fallbacks)
  local seen = {}
  for _, rule in ipairs(list or {}) do
    for _, action in ipairs(rule.actions) do
      if not seen[action] then
        seen[action] = true
        fallbacks[#fallbacks + 1] = { id = "operator:" .. rule.id, source = 1, action = action,
          effect = "ask", reason = rule.reason, file = rule.file, line = rule.line }
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

--- Errors of the rules refuse the policy as a whole; its first one is the refusal's, and all are listed.
local function proven(input, warn)
  local errors, warnings = prove.run(input.policy, input.profile)
  if #errors > 0 then
    local first = errors[1]
    local all = {}
    for i = 1, #errors do all[i] = errors[i].text end
    error({ failure = true, path = "", code = "INVALID_POLICY", line = first.line, all = all,
      message = #errors == 1 and first.text or ("%s (and %d more)"):format(first.text, #errors - 1) }, 0)
  end
  for _, warning in ipairs(warnings) do warn(warning.text) end
end

local function build(input, warn)
  proven(input, warn)
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
  local rules, fallbacks, name, count = host.rows(), json.array({}), namer(), 0
  local conditions, when_of = conditions_of(input.policy.conditions or {})
  local used = {}
  count = spread(0, "profile", input.profile.rules, rules, count, name, when_of, used)
  count = spread(1, "operator", input.policy.rules, rules, count, name, when_of, used)
  local from, unmatched = manifest.rules(m, input.in_workspace, warn)
  for _, rule in ipairs(from) do
    host.row(rules, rule.action, nil, rule.effect, nil, name(rule.id), nil, rule.match, rule.pattern, nil, 2)
  end
  for i, fallback in ipairs(unmatched) do
    fallback.source = 2
    fallbacks[i] = fallback
  end
  otherwise_of(input.policy.otherwise, fallbacks)
  count = count + #from
  if count > RULES_MAX then
    schema.fail("", ("policy and manifest make %d rules; at most %d are decided")
      :format(count, RULES_MAX), "INVALID_POLICY")
  end
  return { v = 2, sources = sources, rules = rules, fallbacks = fallbacks,
    predicates = input.policy.predicates == true, conditions = conditions,
    programs = programs_of(input.policy.programs or {}, used) }, m
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
    return { error = { code = failure.code or "INVALID_MANIFEST", text = failure.message, all = failure.all,
      line = failure.line or line_of(input.marks or {}, failure.path) or 0 } }
  end
  return { table = tab, manifest = m, warnings = warnings }
end

return compile
