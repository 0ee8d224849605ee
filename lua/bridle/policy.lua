--- The policy language. A bundle is a file that returns
---
---     local policy = require "bridle.policy"
---     return policy.bundle {
---       api = 1,
---       name = "my-rules",
---       rules = {
---         policy.deny { id = "no-rm", action = "process.exec", command = "rm *", reason = "use git" },
---         policy.allow { id = "reads", action = "fs.read" },
---       },
---     }
---
--- The strictest rule that matches is the bundle's vote; their order never matters. Rules are values
--- that cannot be changed; a list of rules may stand where a rule stands.

local host = require "bridle.host"
local json = require "json"
local nearest = require "bridle.nearest"
local pattern = require "bridle.pattern"

local policy = {}

local ACTIONS = { "process.exec", "fs.read", "fs.write", "network", "git.push", "mcp.call",
  "workspace.promote" }
local MATCHERS = { "command", "path", "host", "text" }
local RULE_KEYS = { "id", "action", "command", "path", "host", "text", "reason" }
local BUNDLE_KEYS = { "api", "name", "rules", "check", "actions" }
local RULES_MAX = 10000

local rules = {}   -- value -> its data, which scripts cannot reach
local bundles = {}

local function contains(list, word)
  for _, w in ipairs(list) do
    if w == word then return true end
  end
  return false
end

--- Raise an error at the line that called the function which calls this (level 1), or further up.
local function refuse(level, message, ...)
  error(message:format(...), level + 2)
end

local function check_keys(what, value, keys, level)
  if type(value) ~= "table" then
    refuse(level + 1, "%s takes a table, not a %s", what, type(value))
  end
  local unknown
  for key in pairs(value) do
    if not contains(keys, key) and (not unknown or tostring(key) < tostring(unknown)) then
      unknown = key
    end
  end
  if unknown == nil then return end
  if type(unknown) ~= "string" then
    refuse(level + 1, "%s takes named fields, such as id = 'no-rm'", what)
  end
  refuse(level + 1, "'%s' is not a field of %s%s", unknown, what, nearest.hint(unknown, keys))
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

local function check_id(what, id, level)
  if type(id) ~= "string" then
    refuse(level + 1, "%s needs an id, so that a decision can name it: id = 'no-rm'", what)
  end
  if #id > 64 or not id:find("^[a-z0-9][a-z0-9._-]*$") then
    refuse(level + 1, "the id '%s' must be lower-case letters, digits, '-', '_' and '.', at most 64", id)
  end
end

--- The matcher of a rule and its patterns, checked against its actions.
local function check_match(what, fields, actions, level)
  local kind
  for _, name in ipairs(MATCHERS) do
    if fields[name] ~= nil then
      if kind then
        refuse(level + 1, "%s has '%s' and '%s'; one rule has one matcher", what, kind, name)
      end
      kind = name
    end
  end
  if not kind then return "any", {} end
  local patterns = texts(fields[kind])
  if not patterns then
    refuse(level + 1, "'%s' of %s must be a text or a list of texts", kind, what)
  end
  for _, p in ipairs(patterns) do
    local problem = pattern.problem(kind, p)
    if problem then
      refuse(level + 1, "the %s pattern '%s' of %s does nothing: %s", kind, (p:gsub("%c", "?")), what,
        problem)
    end
  end
  for _, action in ipairs(actions) do
    local wanted = pattern.matcher(action)
    if wanted ~= kind then
      refuse(level + 1, "%s matches a '%s', which '%s' does not have; use '%s'", what, kind, action, wanted)
    end
  end
  return kind, patterns
end

local readable = { id = true, effect = true, match = true, reason = true }
local rule_metatable = {
  __name = "policy.rule",
  __index = function(value, key) return readable[key] and rules[value][key] or nil end,
  __newindex = function(value) error(("rule '%s' cannot be changed"):format(rules[value].id), 2) end,
}

local function make_rule(effect, fields)
  local what = "policy." .. effect
  check_keys(what, fields, RULE_KEYS, 2)
  check_id(what, fields.id, 2)
  what = ("rule '%s'"):format(fields.id)
  local actions = texts(fields.action)
  if not actions then
    refuse(2, "%s needs an action, such as action = 'process.exec', or '*' for every one", what)
  end
  for _, action in ipairs(actions) do
    local near, edits
    if not contains(ACTIONS, action) then near, edits = nearest.word(action, ACTIONS) end
    if edits == 1 then
      refuse(2, "%s: there is no action '%s'; did you mean '%s'?", what, action, near)
    end
  end
  local match, patterns = check_match(what, fields, actions, 2)
  local reason = fields.reason
  if reason ~= nil and (type(reason) ~= "string" or #reason == 0 or #reason > 512 or
      reason:find("%c") or not utf8.len(reason)) then
    refuse(2, "'reason' of %s must be one line of text, at most 512 bytes", what)
  end
  local file, line = host.where(3)
  local data = { id = fields.id, effect = effect, actions = actions, match = match,
    patterns = patterns, reason = reason, file = file, line = line }
  local value = setmetatable({}, rule_metatable)
  rules[value] = data
  return value
end

--- A rule that denies.
---@param fields table id, action, one of command|path|host|text, reason
---@return table rule
function policy.deny(fields)
  return (make_rule("deny", fields))
end

--- A rule that asks the operator.
---@param fields table
---@return table rule
function policy.ask(fields)
  return (make_rule("ask", fields))
end

--- A rule that allows, where nothing stricter matches.
---@param fields table
---@return table rule
function policy.allow(fields)
  return (make_rule("allow", fields))
end

--- The data of all rules of a list, nested lists included.
local function collect(list, into, depth)
  if depth > 8 then error("the lists of rules are nested too deeply", 0) end
  for i = 1, #list do
    local value = list[i]
    if type(value) == "table" and rules[value] then
      into[#into + 1] = rules[value]
    elseif type(value) == "table" and not bundles[value] then
      collect(value, into, depth + 1)
    else
      error(("element %d of 'rules' is a %s, not a rule; make one with policy.deny, .ask or .allow")
        :format(i, type(value)), 0)
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

local function at_rule(rule, message, ...)
  error(("%s:%d: rule '%s': %s"):format(rule.file or "policy", rule.line or 0, rule.id,
    message:format(...)), 0)
end

local function check_rules(list, own)
  local seen = {}
  for _, rule in ipairs(list) do
    if seen[rule.id] then
      at_rule(rule, "the id is used in line %d already", seen[rule.id].line or 0)
    end
    seen[rule.id] = rule
    for _, action in ipairs(rule.actions) do
      if action ~= "*" and not contains(ACTIONS, action) and not contains(own, action) then
        local known = table.pack(table.unpack(ACTIONS))
        for _, name in ipairs(own) do known[#known + 1] = name end
        local near = nearest.word(action, known)
        at_rule(rule, "there is no action '%s'%s", action, near and ("; did you mean '%s'?"):format(near)
          or ("; declare one of your own in the bundle: actions = { '%s' }"):format((action:gsub("%c", "?"))))
      end
    end
  end
end

local function check_own_actions(list)
  if list == nil then return {} end
  local own = type(list) == "table" and (texts(list) or (#list == 0 and {}))
  if not own then refuse(2, "'actions' must be a list of names") end
  for _, name in ipairs(own) do
    if not name:find("^[a-z][a-z0-9_.-]*$") or #name > 63 then
      refuse(2, "the action '%s' must be lower-case letters, digits, '.', '-' and '_'", name)
    end
    local near, edits = nearest.word(name, ACTIONS)
    if near and edits <= 1 and name ~= near then
      refuse(2, "the action '%s' of your own is too near to '%s'", name, near)
    end
  end
  return own
end

--- A bundle: what a policy file returns.
---@param fields table api = 1, name, rules, check?, actions?
---@return table bundle
function policy.bundle(fields)
  check_keys("policy.bundle", fields, BUNDLE_KEYS, 1)
  if fields.api ~= 1 then
    refuse(1, "this version reads bundles with api = 1, not %s", tostring(fields.api))
  end
  check_id("policy.bundle", fields.name, 1)
  if type(fields.rules) ~= "table" then refuse(1, "'rules' must be a list of rules") end
  if fields.check ~= nil and type(fields.check) ~= "function" then
    refuse(1, "'check' must be a function of one request, not a %s", type(fields.check))
  end
  local own = check_own_actions(fields.actions)
  local list = collect(fields.rules, {}, 1)
  check_rules(list, own)
  local value = setmetatable({}, {
    __name = "policy.bundle",
    __index = { name = fields.name, api = 1 },
    __newindex = function() error("a bundle cannot be changed", 2) end,
  })
  bundles[value] = { name = fields.name, rules = list, check = fields.check }
  return value
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
  local list = json.array({})
  for i, rule in ipairs(data.rules) do
    local actions, patterns = json.array({}), json.array({})
    for k, action in ipairs(rule.actions) do actions[k] = action end
    for k, p in ipairs(rule.patterns) do patterns[k] = p end
    list[i] = { id = rule.id, effect = rule.effect, actions = actions, match = rule.match,
      patterns = patterns, reason = rule.reason, file = rule.file, line = rule.line }
  end
  return { name = data.name, rules = list, predicates = data.check ~= nil }
end

--- What the bundle's predicate says of a request: nil (no opinion), or "ask" or "deny", and a reason.
---@param bundle table
---@param request table
---@return string?, string?
function policy.vote(bundle, request)
  local data = bundles[bundle]
  if not data.check then return nil end
  local effect, reason = data.check(request)
  if effect == nil then return nil end
  if effect ~= "ask" and effect ~= "deny" then
    local said = type(effect) == "string" and ("'%s'"):format((effect:sub(1, 40):gsub("%c", "?")))
      or "a " .. type(effect)
    error(("the function 'check' returned %s; it may say \"ask\", \"deny\" or nothing%s"):format(said,
      effect == "allow" and "; to allow, write a rule" or ""), 0)
  end
  if reason ~= nil and type(reason) ~= "string" then
    error(("the reason that 'check' returned is a %s, not a text"):format(type(reason)), 0)
  end
  return effect, reason
end

return policy
