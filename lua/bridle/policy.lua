--- The policy language. A bundle is a file that returns
---
---     local policy = require "bridle.policy"
---     return policy.bundle {
---       api = 1,
---       name = "my-rules",
---       rules = {
---         policy.deny { id = "no-push", action = "process.exec",
---           command = policy.command { "git", "push" } },
---         policy.allow { id = "reads", action = "fs.read" },
---       },
---     }
---
--- The strictest rule that matches is the bundle's vote; their order never matters. Rules, groups,
--- commands and checks are values that cannot be changed; a list of rules may stand where a rule
--- stands. What a value holds is kept here, where scripts cannot reach it.

local command = require "bridle.command"
local condition = require "bridle.condition"
local host = require "bridle.host"
local json = require "json"
local nearest = require "bridle.nearest"
local pattern = require "bridle.pattern"

local policy = {}

local function set(list)
  local out = { list = list }
  for _, word in ipairs(list) do out[word] = true end
  return out
end

local ACTIONS = set { "process.exec", "fs.read", "fs.write", "network", "git.push", "mcp.call",
  "workspace.promote", "adapter.run", "adapter.tool" }
local MATCHERS = { "command", "path", "host", "text" }
local RULE_KEYS = set { "id", "action", "command", "path", "host", "text", "reason", "when", "accept" }
local OTHERWISE_KEYS = set { "id", "action", "reason" }
local GROUP_KEYS = set { "action", "reason", "when" }
local BUNDLE_KEYS = set { "api", "name", "rules", "check", "actions", "programs", "extend", "replace" }
--- Warnings about a rule that its author can accept.
local ACCEPTED = set { "over-broad", "shadowed-rule", "duplicate-rule", "unrepresentable",
  "unasked-action", "unknown-tool", "dead-pattern" }
local RULES_MAX = 10000
local EXTEND_MAX = 8

local rules = {}    -- value -> its data
local groups = {}   -- value -> list of data
local checks = {}
local commands = {}
local bundles = {}

--- Levels that stand between a function of the API and its caller; see collected().
local shift = 0

--- Raise an error at the line that called the function which calls this (level 1), or further up.
local function refuse(level, message, ...)
  error(message:format(...), level + 2 + shift)
end

--- make(...), or, when the errors of a text are collected, what stands for a value that is wrong.
--- Whoever made it is told of the error in the end; until then the text goes on.
local function collected(make, broken, ...)
  local before = shift
  shift = 2 -- this function and pcall
  local ok, value = pcall(make, ...)
  shift = before
  if ok then return value end
  host.problem(value)
  return broken(...)
end

local function readable_value(name, fields)
  return setmetatable({}, {
    __name = name,
    __index = fields,
    __newindex = function() error(("a %s cannot be changed"):format(name:match("%a+$")), 2) end,
  })
end

local function check_keys(what, value, keys, level)
  if type(value) ~= "table" then
    refuse(level + 1, "%s takes a table, not a %s", what, type(value))
  end
  local unknown
  for key in next, value do
    if not keys[key] and (not unknown or tostring(key) < tostring(unknown)) then unknown = key end
  end
  if unknown == nil then return end
  if type(unknown) ~= "string" then
    refuse(level + 1, "%s takes named fields, such as id = 'no-rm'", what)
  end
  refuse(level + 1, "'%s' is not a field of %s%s", unknown, what, nearest.hint(unknown, keys.list))
end

--- A text or a list of texts, as a list; nil if it is neither.
local function texts(value)
  if type(value) == "string" then return { value } end
  if type(value) ~= "table" or #value == 0 then return nil end
  local list = {}
  for i = 1, #value do
    if type(value[i]) ~= "string" then return nil end
    list[i] = value[i]
  end
  return list
end

local function id_problem(what, id)
  if type(id) ~= "string" then
    return ("%s needs an id, so that a decision can name it: id = 'no-rm'"):format(what)
  end
  if #id > 64 or not id:find("^[a-z0-9][a-z0-9._-]*$") then
    return ("the id '%s' must be lower-case letters, digits, '-', '_' and '.', at most 64")
      :format((id:sub(1, 80):gsub("%c", "?")))
  end
end

local function reason_problem(what, reason)
  if reason ~= nil and (type(reason) ~= "string" or #reason == 0 or #reason > 512 or
      reason:find("%c") or not utf8.len(reason)) then
    return ("'reason' of %s must be one line of text in UTF-8, at most 512 bytes"):format(what)
  end
end

--- The actions of a rule or group, checked as far as a misspelling shows; nil and what is wrong.
local function actions_of(what, value)
  local actions = texts(value)
  if not actions then
    return nil, ("%s needs an action, such as action = 'process.exec', or '*' for every one"):format(what)
  end
  for _, action in ipairs(actions) do
    if not ACTIONS[action] then
      local near, edits = nearest.word(action, ACTIONS.list)
      if edits == 1 then
        return nil, ("%s: there is no action '%s'; did you mean '%s'?"):format(what, action, near)
      end
    end
  end
  return actions
end

--- Patterns and structured commands of a 'command' field.
local function split_commands(value)
  if commands[value] then value = { value } end
  if type(value) ~= "table" then return texts(value), {} end
  local patterns, structured = {}, {}
  for i = 1, #value do
    local element = value[i]
    if commands[element] then
      structured[#structured + 1] = commands[element]
    elseif type(element) == "string" then
      patterns[#patterns + 1] = element
    else
      return nil
    end
  end
  if #patterns + #structured == 0 then return nil end
  return patterns, structured
end

--- The matcher of a rule: its kind, patterns, structured commands; or nil and what is wrong.
local function matcher_of(what, fields)
  local kind
  for i = 1, #MATCHERS do
    local name = MATCHERS[i]
    if fields[name] ~= nil then
      if kind then return nil, ("%s has '%s' and '%s'; one rule has one matcher"):format(what, kind, name) end
      kind = name
    end
  end
  if not kind then return "any", {}, {} end
  local patterns, structured
  if kind == "command" then
    patterns, structured = split_commands(fields.command)
  else
    patterns, structured = texts(fields[kind]), {}
  end
  if not patterns then
    return nil, kind == "command"
      and ("'command' of %s must be a text, a policy.command { ... }, or a list of those"):format(what)
      or ("'%s' of %s must be a text or a list of texts"):format(kind, what)
  end
  for i = 1, #patterns do
    local problem = pattern.problem(kind, patterns[i])
    if problem then
      return nil, ("the %s pattern '%s' of %s does nothing: %s"):format(kind, (patterns[i]:gsub("%c", "?")),
        what, problem)
    end
  end
  return kind, patterns, structured
end

--- Does the matcher see subjects of these actions; what is wrong, or nil.
local function fit_problem(what, kind, actions)
  if kind == "any" then return nil end
  for i = 1, #actions do
    local wanted = pattern.matcher(actions[i])
    if wanted ~= kind then
      return ("%s matches a '%s', which '%s' does not have; use '%s'"):format(what, kind, actions[i], wanted)
    end
  end
end

local function accepted_of(what, value)
  if value == nil then return nil end
  local list = texts(value)
  if not list then return nil,
    ("'accept' of %s is a warning, or a list of warnings, to live with"):format(what) end
  local out = {}
  for _, code in ipairs(list) do
    if not ACCEPTED[code] then
      return nil, ("'accept' of %s: there is no warning '%s'%s"):format(what, code,
        nearest.hint(code, ACCEPTED.list))
    end
    out[code] = true
  end
  return out
end

local readable = { id = true, effect = true, match = true, reason = true }
local new_rule = host.class {
  __name = "policy.rule",
  __index = function(value, key) return readable[key] and rules[value][key] or nil end,
  __newindex = function(value) error(("rule '%s' cannot be changed"):format(rules[value].id), 2) end,
}

local NONE = {}
local ONE = {} -- action -> the list of it, which many rules share
for _, action in ipairs(ACTIONS.list) do ONE[action] = { action } end

--- A rule as most are: nothing of it has to be looked at closely. Nil for others.
local function quick_rule(effect, fields)
  local id, action, match, text, structured, reason = host.rule(fields, ACTIONS, commands)
  if not id then return nil end
  local file, line = host.where(4 + shift)
  local value = new_rule()
  rules[value] = { id = id, effect = effect, actions = ONE[action], match = match,
    patterns = text and { text } or NONE, commands = structured and { structured } or NONE,
    whens = NONE, reason = reason, file = file, line = line }
  return value
end

local function make_rule(effect, fields)
  local quick = quick_rule(effect, fields)
  if quick then return quick end
  local what = "policy." .. effect
  check_keys(what, fields, RULE_KEYS, 2)
  local problem = id_problem(what, fields.id)
  if problem then refuse(2, "%s", problem) end
  what = "rule '" .. fields.id .. "'"
  local actions, match, patterns, structured, accepted
  if fields.action ~= nil then
    actions, problem = actions_of(what, fields.action)
    if problem then refuse(2, "%s", problem) end
  end
  match, patterns, structured = matcher_of(what, fields)
  if not match then refuse(2, "%s", patterns) end
  problem = actions and fit_problem(what, match, actions) or reason_problem(what, fields.reason)
  if problem then refuse(2, "%s", problem) end
  local whens = NONE
  if fields.when ~= nil then
    local when
    when, problem = condition.make(fields.when)
    if not when then refuse(2, "%s: %s", what, problem) end
    whens = { when }
  end
  accepted, problem = accepted_of(what, fields.accept)
  if problem then refuse(2, "%s", problem) end
  local file, line = host.where(3 + shift)
  local data = { id = fields.id, effect = effect, actions = actions, match = match,
    patterns = patterns, commands = structured, whens = whens, reason = fields.reason,
    accepted = accepted, file = file, line = line }
  local value = new_rule()
  rules[value] = data
  return value
end

--- In the place of a rule that is wrong: the lists of rules leave it out.
local function broken_rule(_, fields)
  local value = new_rule()
  rules[value] = { id = type(fields) == "table" and fields.id or "", broken = true }
  return value
end

local function rule_of(effect, fields)
  return collected(make_rule, broken_rule, effect, fields)
end

--- A rule that denies.
---@param fields table id, action, one of command|path|host|text, when, reason, accept
---@return table rule
function policy.deny(fields)
  if host.collecting() then return (rule_of("deny", fields)) end
  return (make_rule("deny", fields))
end

--- A rule that asks the operator.
---@param fields table
---@return table rule
function policy.ask(fields)
  if host.collecting() then return (rule_of("ask", fields)) end
  return (make_rule("ask", fields))
end

--- A rule that allows, where nothing stricter matches.
---@param fields table
---@return table rule
function policy.allow(fields)
  if host.collecting() then return (rule_of("allow", fields)) end
  return (make_rule("allow", fields))
end

local function make_otherwise(_, fields)
  check_keys("policy.otherwise", fields, OTHERWISE_KEYS, 2)
  local problem = id_problem("policy.otherwise", fields.id)
  if problem then refuse(2, "%s", problem) end
  local what = ("rule '%s'"):format(fields.id)
  local actions
  actions, problem = actions_of(what, fields.action)
  problem = problem or reason_problem(what, fields.reason)
  if problem then refuse(2, "%s", problem) end
  local file, line = host.where(3 + shift)
  local value = new_rule()
  rules[value] = { id = fields.id, effect = "ask", actions = actions, match = "any", patterns = {},
    commands = NONE, whens = NONE, reason = fields.reason, file = file, line = line, otherwise = true }
  return value
end

--- Asks where no other rule of the bundle speaks of the action: what the rules allow stays allowed,
--- unlike with an ask rule for the whole action, which is stricter than every allow.
---@param fields table id, action, reason?
---@return table rule
function policy.otherwise(fields)
  if host.collecting() then return (collected(make_otherwise, broken_rule, "ask", fields)) end
  return (make_otherwise("ask", fields))
end

local function make_command(fields)
  local data, problem = command.make(fields)
  if not data then refuse(2, "%s", problem) end
  local value = readable_value("policy.command", { shown = data.shown })
  commands[value] = data
  return value
end

local function broken_command()
  return make_command { "broken" }
end

--- A command by what it means: { program, sub-command..., flags =, without =, arguments = }.
---@param fields table
---@return table command
function policy.command(fields)
  if host.collecting() then return (collected(make_command, broken_command, fields)) end
  return (make_command(fields))
end

local function make_check(id, fn)
  local problem = id_problem("policy.check", id)
  if problem then refuse(2, "%s", problem) end
  if type(fn) ~= "function" then
    refuse(2, "policy.check takes an id and a function of one request, not a %s", type(fn))
  end
  local file, line = host.where(3 + shift)
  local value = readable_value("policy.check", { id = id })
  checks[value] = { id = id, fn = fn, file = file, line = line }
  return value
end

--- A predicate that may tighten an answer, under an id of its own.
---@param id string
---@param fn fun(request: table): string?, string?
---@return table check
function policy.check(id, fn)
  if host.collecting() then return (collected(make_check, broken_rule, id, fn)) end
  return (make_check(id, fn))
end

local function at_rule(rule, message, ...)
  error(("%s:%d: rule '%s': %s"):format(rule.file or "policy", rule.line or 0, rule.id,
    message:format(...)), 0)
end

--- The data of all rules and checks of a list, nested lists and groups included.
local function collect(list, into, found, depth)
  if depth > 8 then error("the lists of rules are nested too deeply", 0) end
  for i = 1, #list do
    local value = list[i]
    if rules[value] then
      if rules[value].broken then
        found.broken = found.broken or {}
        found.broken[rules[value].id] = true
      else
        into[#into + 1] = rules[value]
      end
    elseif groups[value] then
      for _, rule in ipairs(groups[value]) do into[#into + 1] = rule end
    elseif checks[value] then
      found[#found + 1] = checks[value]
    elseif type(value) == "table" and not bundles[value] and not commands[value] then
      collect(value, into, found, depth + 1)
    else
      error(("element %d of 'rules' is a %s, not a rule; make one with policy.deny, .ask or .allow")
        :format(i, bundles[value] and "bundle" or commands[value] and "command" or type(value)), 0)
    end
    if #into > RULES_MAX then error(("the bundle has more than %d rules"):format(RULES_MAX), 0) end
  end
  local count = 0
  for _ in pairs(list) do count = count + 1 end
  if count ~= #list then
    error("'rules' is a list; a named field or a gap in it would be a rule that does nothing", 0)
  end
  return into
end

local function make_group(fields)
  if type(fields) ~= "table" then refuse(2, "policy.group takes a table, not a %s", type(fields)) end
  local list, named = {}, {}
  for key, value in pairs(fields) do
    local element = math.type(key) == "integer" and key >= 1 and key <= #fields
    if element then list[key] = value else named[key] = value end
  end
  check_keys("policy.group", named, GROUP_KEYS, 2)
  if #list == 0 then refuse(2, "policy.group holds no rules") end
  if next(named) == nil then
    refuse(2, "policy.group shares nothing: it takes action, reason or when; a plain list needs no group")
  end
  local what, actions, when = "policy.group", nil, nil
  local problem = reason_problem(what, named.reason)
  if not problem and named.action ~= nil then actions, problem = actions_of(what, named.action) end
  if not problem and named.when ~= nil then when, problem = condition.make(named.when) end
  if problem then refuse(2, "%s", problem) end
  local found, data = {}, {}
  for i, rule in ipairs(collect(list, {}, found, 1)) do
    local copy = {}
    for key, value in pairs(rule) do copy[key] = value end
    copy.actions = rule.actions or actions
    copy.reason = rule.reason or named.reason
    if when then
      if rule.otherwise then at_rule(rule, "what is done otherwise has no conditions") end
      copy.whens = { table.unpack(rule.whens) }
      copy.whens[#copy.whens + 1] = when
    end
    problem = copy.actions and fit_problem(("rule '%s'"):format(rule.id), rule.match, copy.actions)
    if problem then at_rule(rule, "%s", problem) end
    if #copy.whens > 16 then at_rule(rule, "it is in more than 16 groups with conditions") end
    data[i] = copy
  end
  if #found > 0 then
    refuse(2, "the check '%s' cannot be in a group; it stands among the rules of the bundle", found[1].id)
  end
  local value = readable_value("policy.group", {})
  groups[value] = data
  return value
end

local function broken_group()
  local value = readable_value("policy.group", {})
  groups[value] = {}
  return value
end

--- Rules that share an action, a reason or conditions. What a rule says itself stays; conditions
--- add up.
---@param fields table action?, reason?, when?, and the rules
---@return table group
function policy.group(fields)
  if host.collecting() then return (collected(make_group, broken_group, fields)) end
  return (make_group(fields))
end

local function check_rule(rule, seen, own)
  local other = seen[rule.id]
  if other and other.bundle ~= rule.bundle then
    local mine, theirs = rule, other
    if mine.bundle then mine, theirs = other, rule end
    at_rule(mine, "the id is used by the bundle '%s' (%s:%d), which is extended; %s", theirs.bundle,
      theirs.file or "?", theirs.line or 0, theirs.effect == "deny"
        and "use another id; a rule that denies stays"
        or ("use another id, or replace = { '%s' }"):format(rule.id))
  elseif other then
    at_rule(rule, "the id is used in line %d already", other.line or 0)
  end
  seen[rule.id] = rule
  if not rule.actions then
    at_rule(rule, "it needs an action, such as action = 'process.exec', or '*' for every one; "
      .. "neither it nor a group has one")
  end
  for _, action in ipairs(rule.actions) do
    if action ~= "*" and not ACTIONS[action] and not own[action] then
      local known = table.pack(table.unpack(ACTIONS.list))
      for _, name in ipairs(own.list) do known[#known + 1] = name end
      local near = nearest.word(action, known)
      at_rule(rule, "there is no action '%s'%s", action, near and ("; did you mean '%s'?"):format(near)
        or ("; declare one of your own in the bundle: actions = { '%s' }"):format((action:gsub("%c", "?"))))
    end
  end
end

local function check_rules(list, own)
  local seen = {}
  for _, rule in ipairs(list) do
    if host.collecting() then
      local ok, problem = pcall(check_rule, rule, seen, own)
      if not ok then host.problem(problem) end
    else
      check_rule(rule, seen, own)
    end
  end
end

local function check_own_actions(list)
  if list == nil then return set {} end
  local own = type(list) == "table" and (texts(list) or (#list == 0 and {}))
  if not own then refuse(2, "'actions' must be a list of names") end
  for _, name in ipairs(own) do
    if not name:find("^[a-z][a-z0-9_.-]*$") or #name > 63 then
      refuse(2, "the action '%s' must be lower-case letters, digits, '.', '-' and '_'", name)
    end
    local near, edits = nearest.word(name, ACTIONS.list)
    if near and edits <= 1 and name ~= near then
      refuse(2, "the action '%s' of your own is too near to '%s'", name, near)
    end
  end
  return set(own)
end

--- Checks by id; the bundle's `check` is one with the id "check".
local function check_checks(list, fn)
  if fn ~= nil then
    if type(fn) ~= "function" then
      refuse(2, "'check' must be a function of one request, not a %s", type(fn))
    end
    list[#list + 1] = { id = "check", fn = fn }
  end
  table.sort(list, function(a, b) return a.id < b.id end)
  for i = 2, #list do
    if list[i].id == list[i - 1].id then
      refuse(2, "there are two checks with the id '%s'", list[i].id)
    end
  end
  return list
end

--- The bundle of a shipped file.
local function shipped(name)
  local known = host.bundles()
  for _, other in ipairs(known) do
    if other == name then
      local value = host.bundle(name)
      return bundles[value] or error(("the bundle '%s' is none"):format(name), 0)
    end
  end
  refuse(3, "there is no bundle '%s' to extend%s; other files are not read", name:gsub("%c", "?"),
    nearest.hint(name, known))
end

--- Adds the rules and checks of the bundles that are extended, without those that are replaced.
local function extend(fields, list, found, own)
  local names = fields.extend == nil and {} or texts(fields.extend)
  local replaced = fields.replace == nil and {} or texts(fields.replace)
  if not names or #names > EXTEND_MAX then
    refuse(2, "'extend' is the name of a bundle that is built in, such as 'default', or a list of names")
  end
  if not replaced then refuse(2, "'replace' is a list of ids of rules of the extended bundle") end
  local mine, gone, programs, there = {}, {}, {}, {}
  --- Is this the rule or check that another of the bundles brought: two may extend the same one.
  local function is_there(value)
    local other = there[value.id]
    if other and other.file == value.file and other.line == value.line then return true end
    there[value.id] = other or value
    return false
  end
  for _, rule in ipairs(list) do mine[rule.id] = rule end
  for _, id in ipairs(replaced) do
    if not mine[id] and not (found.broken and found.broken[id]) then
      refuse(2, "'replace' names '%s', and no rule of this bundle has that id to take its place", id)
    end
    gone[id] = false
  end
  for _, name in ipairs(names) do
    local bundle = shipped(name)
    for _, rule in ipairs(bundle.rules) do
      if gone[rule.id] == nil then
        if not is_there(rule) then
          local copy = {}
          for key, value in pairs(rule) do copy[key] = value end
          copy.bundle = rule.bundle or name
          list[#list + 1] = copy
        end
      elseif rule.effect == "deny" then
        refuse(2, "'replace' names '%s', which denies (%s:%d); a denial cannot be replaced: copy the bundle"
          .. " to leave it out", rule.id, rule.file or "?", rule.line or 0)
      else
        gone[rule.id] = true
      end
    end
    for _, check in ipairs(bundle.checks) do
      if not is_there(check) then found[#found + 1] = check end
    end
    for _, action in ipairs(bundle.own.list) do
      if not own[action] then
        own[action] = true
        own.list[#own.list + 1] = action
      end
    end
    for program, options in pairs(bundle.programs) do programs[program] = options end
  end
  for _, id in ipairs(replaced) do
    if not gone[id] then refuse(2, "'replace' names '%s', which no extended bundle has", id) end
  end
  return programs
end

local function make_bundle(fields)
  check_keys("policy.bundle", fields, BUNDLE_KEYS, 1)
  if fields.api ~= 1 then
    if fields.api == nil then refuse(1, "it does not say api = 1, which this version reads") end
    refuse(1, "this version reads bundles with api = 1, not %s", tostring(fields.api))
  end
  local problem = id_problem("policy.bundle", fields.name)
  if problem then refuse(1, "%s", problem) end
  if type(fields.rules) ~= "table" or groups[fields.rules] or rules[fields.rules] then
    refuse(1, "'rules' must be a list of rules")
  end
  local own = check_own_actions(fields.actions)
  local found, programs = {}, {}
  local list = collect(fields.rules, {}, found, 1)
  if fields.programs ~= nil then
    programs, problem = command.programs(fields.programs)
    if not programs then refuse(1, "%s", problem) end
  end
  for name, options in pairs(extend(fields, list, found, own)) do
    programs[name] = programs[name] or options
  end
  if #list > RULES_MAX then error(("the bundle has more than %d rules"):format(RULES_MAX), 0) end
  check_rules(list, own)
  local value = readable_value("policy.bundle", { name = fields.name, api = 1 })
  bundles[value] = { name = fields.name, rules = list, checks = check_checks(found, fields.check),
    own = own, programs = programs }
  return value
end

local function broken_bundle()
  return readable_value("policy.bundle", {})
end

--- A bundle: what a policy file returns.
---@param fields table api = 1, name, rules, check?, actions?, programs?, extend?, replace?
---@return table bundle
function policy.bundle(fields)
  if host.collecting() then return collected(make_bundle, broken_bundle, fields) end
  return make_bundle(fields) -- in the place of this call, so that levels count the same
end

local function array(list)
  local out = json.array({})
  for i = 1, #list do out[i] = list[i] end
  return out
end

--- Conditions are written once, however many rules have them.
local function interner()
  local list, index = json.array({}), {}
  return list, function(whens)
    if #whens == 0 then return nil end
    local out = json.array({})
    for i = 1, #whens do
      local when = whens[i]
      if not index[when] then
        list[#list + 1] = when
        index[when] = #list
      end
      out[i] = index[when]
    end
    return out
  end
end

--- Where the function of the one check is; nil if there are others that could be meant.
local function check_place(list)
  if #list ~= 1 then return nil end
  local file, line = host.defined(list[1].fn)
  return file and { file = file, line = line }
end

--- The rules of a bundle as plain data.
---@param bundle any what a policy file returned
---@return table
function policy.export(bundle)
  local data = type(bundle) == "table" and bundles[bundle]
  if not data then
    local what = bundle == nil and "nothing" or "a " .. type(bundle)
    error(("the policy returned %s; it must end with 'return policy.bundle { ... }'"):format(what), 0)
  end
  local list, otherwise = json.array({}), json.array({})
  local conditions, intern = interner()
  for _, rule in ipairs(data.rules) do
    local accepted
    for code in pairs(rule.accepted or NONE) do
      accepted = accepted or json.array({})
      accepted[#accepted + 1] = code
    end
    local into = rule.otherwise and otherwise or list
    into[#into + 1] = { id = rule.id, effect = rule.effect, actions = array(rule.actions), match = rule.match,
      patterns = array(rule.patterns), commands = #rule.commands > 0 and array(rule.commands) or nil,
      when = intern(rule.whens), reason = rule.reason, accepted = accepted, bundle = rule.bundle,
      file = rule.file, line = rule.line }
  end
  return { name = data.name, rules = list, otherwise = otherwise, conditions = conditions,
    programs = data.programs, predicates = #data.checks > 0 }
end

--- The same for the compiler, without copies: scripts never see it.
host.keep(function(bundle)
  local data = type(bundle) == "table" and bundles[bundle]
  if not data then return policy.export(bundle) end
  local list, otherwise = {}, {}
  local conditions, intern = interner()
  for _, rule in ipairs(data.rules) do
    if #rule.whens > 0 then
      local copy = {}
      for key, value in pairs(rule) do copy[key] = value end
      copy.when = intern(rule.whens)
      copy.whens = nil
      rule = copy
    end
    if rule.otherwise then otherwise[#otherwise + 1] = rule else list[#list + 1] = rule end
  end
  return { name = data.name, rules = list, otherwise = otherwise, conditions = conditions,
    programs = data.programs, predicates = #data.checks > 0, check = check_place(data.checks) }
end)

local function vote_of(check, request)
  local effect, reason = check.fn(request)
  if effect == nil then return nil end
  if effect ~= "ask" and effect ~= "deny" then
    local said = type(effect) == "string" and ("'%s'"):format((effect:sub(1, 40):gsub("%c", "?")))
      or "a " .. type(effect)
    error(("the function of the check '%s' returned %s; it may say \"ask\", \"deny\" or nothing%s"):format(
      check.id, said, effect == "allow" and "; to allow, write a rule" or ""), 0)
  end
  if reason ~= nil and type(reason) ~= "string" then
    error(("the reason that the check '%s' returned is a %s, not a text"):format(check.id, type(reason)), 0)
  end
  return effect, reason
end

local REQUEST_KEYS = { "action", "subject", "callId", "effect", "manifest", "argv", "tool", "model", "env",
  "time", "zone", "budget" }
local known_request = set(REQUEST_KEYS)
--- A misspelt field would be nil, and the check would say nothing for ever.
local request_meta = {
  __index = function(_, key)
    if known_request[key] then return nil end
    error(("a request has no field '%s'%s"):format((tostring(key):sub(1, 40):gsub("%c", "?")),
      nearest.hint(tostring(key), REQUEST_KEYS)), 2)
  end,
}

--- What the bundle's checks say of a request: nil (no opinion), or "ask" or "deny", a reason, and
--- the id of the check. All of them are asked, in the order of their ids; the strictest counts.
---@param bundle table
---@param request table
---@return string?, string?, string?
function policy.vote(bundle, request)
  local effect, reason, id
  setmetatable(request, request_meta)
  for _, check in ipairs(bundles[bundle].checks) do
    local said, why = vote_of(check, request)
    if said == "deny" or (said and not effect) then
      if effect ~= "deny" then effect, reason, id = said, why, check.id end
    end
  end
  return effect, reason, id
end

return policy
