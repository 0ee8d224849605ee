--- What can be proven about the rules of an operator's bundle before anything is decided: rules that
--- never decide, that contradict or repeat each other, that allow more than their author can have
--- meant, or what the profile cannot do. Exact for what it says (any, literal, prefix, suffix and
--- directory patterns, structured commands); where it cannot tell it says nothing.

local host = require "bridle.host"
local nearest = require "bridle.nearest"

local prove = {}

local RANK = { allow = 1, ask = 2, deny = 3 }
local SAYS = { allow = "allows", ask = "asks about", deny = "denies" }
--- As core/session/tools.c has them.
local TOOLS = { "fs_read", "fs_list", "fs_search", "fs_write", "fs_edit", "process_exec" }
local ASKED = { ["*"] = true, ["process.exec"] = true, ["fs.read"] = true, ["fs.write"] = true,
  network = true, ["adapter.run"] = true,
  ["adapter.tool"] = true }
local BROAD = { ["process.exec"] = "command", network = "connection", ["fs.write"] = "file to be written",
  ["*"] = "action" }
--- Programs that run what their arguments say.
local INTERPRETERS = {}
for name in ([[sh bash dash zsh ksh fish csh tcsh ash busybox env xargs nice nohup timeout time setsid
    sudo su doas python python2 python3 perl ruby node nodejs deno bun lua lua5.4 luajit php pwsh tclsh
    awk gawk mawk osascript ssh script watch parallel strace gdb]]):gmatch("%S+") do
  INTERPRETERS[name] = true
end
--- Those that are looked through.
local WRAPPERS = {}
for name in ("env xargs nice nohup timeout time setsid busybox"):gmatch("%S+") do WRAPPERS[name] = true end
local NOTHING = {}
local LIST_MAX = 64 -- structured commands of one program that are compared with each other

-- ---------------------------------------------------------------------------------------------
-- messages

local function place(rule)
  return ("%s:%d"):format(rule.file or "policy", rule.line or 0)
end

local function add(list, code, rule, message, ...)
  if rule.accepts[code] then
    rule.accepts[code] = "needed"
    return
  end
  list[#list + 1] = { code = code, file = rule.file, line = rule.line or 0, id = rule.id,
    text = ("%s: [%s] rule '%s' %s"):format(place(rule), code, rule.id, message:format(...)) }
end

-- ---------------------------------------------------------------------------------------------
-- atoms: one action and one pattern of a rule, in the forms that can be compared

local literal, part = host.literal, host.part

--- The host without its port.
local function host_of(text)
  if text:sub(1, 1) == "[" then return text end
  return text:match("^([^:]*):[^:]*$") or text
end

local function new_cover()
  return { exact = {}, prefix = {}, lengths = {}, known = {}, suffix = {}, tails = {}, tail_known = {},
    programs = {} }
end

local function stronger(t, key, rule)
  local other = t[key]
  if not other or RANK[rule.effect] > RANK[other.effect] then t[key] = rule end
end

local function add_length(cover, list, known, n)
  if not cover[known][n] then
    cover[known][n] = true
    cover[list][#cover[list] + 1] = n
  end
end

local function add_prefix(cover, text, rule)
  stronger(cover.prefix, text, rule)
  add_length(cover, "lengths", "known", #text)
end

local function add_suffix(cover, text, rule)
  stronger(cover.suffix, text, rule)
  add_length(cover, "tails", "tail_known", #text)
end

--- Is everything of this matcher covered by the pattern.
local function is_all(kind, text)
  return kind == "any" or (kind == "path" and text == "**") or (kind ~= "path" and text == "*")
end

local function add_pattern(cover, kind, text, rule)
  if is_all(kind, text) then
    stronger(cover, "all", rule) -- every subject, but not a request without one
    return
  end
  stronger(cover.exact, text, rule)
  local n, head, tail = #text, literal(text)
  if head == n then return end
  if kind == "path" then
    if head == n - 2 and part(text, n - 2, n) == "/**" then
      stronger(cover.exact, part(text, 1, n - 3), rule)
      add_prefix(cover, part(text, 1, n - 2), rule)
    elseif head == 0 and tail == n - 2 and part(text, 1, 3) == "**/" then
      stronger(cover.exact, part(text, 4, n), rule)
      add_suffix(cover, part(text, 3, n), rule)
    end
  elseif head == n - 1 and part(text, n, n) == "*" then
    add_prefix(cover, part(text, 1, head), rule)
  elseif kind == "host" and tail == n - 1 and part(text, 1, 1) == "*" and not text:find(":", 1, true) then
    add_suffix(cover, part(text, 2, n), rule)
  end
end

local function add_command(cover, c, rule)
  for _, program in ipairs(c.programs) do
    local list = cover.programs[program]
    if not list then
      list = {}
      cover.programs[program] = list
    end
    if #list < LIST_MAX then list[#list + 1] = { rule = rule, command = c } end
  end
end

local function contains(list, word)
  for i = 1, #list do
    if list[i] == word then return true end
  end
  return false
end

local function subset(small, large)
  for i = 1, #small do
    if not contains(large, small[i]) then return false end
  end
  return true
end

--- Everything that `b` can match is matched by `a`, both of one program.
local function command_covers(a, b)
  if a.without or a.arguments or #a.words > #b.words then return false end
  for k = 1, #a.words do
    if not contains(a.words[k], "*") and not subset(b.words[k], a.words[k]) then return false end
  end
  for _, group in ipairs(a.flags or NOTHING) do
    local found = false
    for _, other in ipairs(b.flags or NOTHING) do found = found or subset(other, group) end
    if not found then return false end
  end
  return true
end

--- The words of a pattern that stand there whole, in front.
local function whole_words(text)
  local n = literal(text)
  local head, all, words = part(text, 1, n), n == #text, {}
  for word, blank in head:gmatch("([^ ]+)( ?)") do
    if blank == " " or all then words[#words + 1] = word end
  end
  return words
end

--- Everything that the pattern of words can match is matched by the structured command.
local function command_covers_text(a, words)
  if a.flags or a.without or a.arguments or #words < #a.words + 1 then return false end
  for k = 1, #a.words do
    if words[k + 1]:sub(1, 1) == "-" or not contains(a.words[k], words[k + 1]) then return false end
  end
  return true
end

-- ---------------------------------------------------------------------------------------------
-- looking for what covers

--- The strictest of rules other than `rule` found by `try`; only those that are at least as strict.
local function better(best, found, rule)
  if not found or found == rule or RANK[found.effect] < RANK[rule.effect] then return best end
  if not best or RANK[found.effect] > RANK[best.effect] then return found end
  return best
end

local function cover_of_all(cover, rule)
  return better(nil, cover.any, rule)
end

local function cover_of_pattern(cover, rule, kind, text)
  local best = better(better(nil, cover.any, rule), cover.all, rule)
  local head = literal(text)
  best = better(best, cover.exact[text], rule)
  local lengths, prefix, tails = cover.lengths, cover.prefix, cover.tails
  for i = 1, #lengths do
    local n = lengths[i]
    local found = n <= head and prefix[part(text, 1, n)]
    if found and found ~= rule then best = better(best, found, rule) end
  end
  if #tails > 0 then
    local whole = kind == "host" and host_of(text) or text
    local _, tail = literal(whole)
    for i = 1, #tails do
      local n = tails[i]
      if n <= tail then best = better(best, cover.suffix[part(whole, #whole - n + 1, #whole)], rule) end
    end
  end
  local space = kind == "command" and (text:find(" ", 1, true) or #text + 1)
  if space and cover.programs[part(text, 1, space - 1)] then
    local words = whole_words(text)
    for _, other in ipairs(words[1] and cover.programs[words[1]] or {}) do
      if command_covers_text(other.command, words) then best = better(best, other.rule, rule) end
    end
  end
  return best
end

local function cover_of_command(cover, rule, c)
  local best = better(better(nil, cover.any, rule), cover.all, rule)
  local all
  for i, program in ipairs(c.programs) do -- each of them must be covered
    local found = best
    for _, other in ipairs(cover.programs[program] or {}) do
      if other.command ~= c and command_covers(other.command, c) then found = better(found, other.rule,
        rule) end
    end
    if not found then return best end
    if i == 1 or RANK[found.effect] < RANK[all.effect] then all = found end
  end
  return all
end

local function key_of(when)
  return when and table.concat(when, ",") or ""
end

-- ---------------------------------------------------------------------------------------------
-- single rules

local function sum_of_budgets(list, conditions)
  local low, high = {}, {}
  for _, index in ipairs(list) do
    for _, limit in ipairs(conditions[index].budget or {}) do
      local name = limit.counter .. " " .. limit.value
      if limit.is == "over" then
        low[name] = math.max(low[name] or 0, limit.limit + 1)
      else
        high[name] = math.min(high[name] or math.maxinteger, limit.limit - 1)
      end
    end
  end
  for name, most in pairs(high) do
    if most < (low[name] or 0) then return ("no count of '%s' is in its budget"):format(name) end
  end
end

local function all_literal(list)
  for i = 1, #list do
    if list[i]:find("[*?]") then return false end
  end
  return true
end

local function conflict(list, conditions)
  for _, field in ipairs { "tool", "model" } do
    local seen
    for _, index in ipairs(list) do
      local names = conditions[index][field]
      if names and all_literal(names) then
        if seen then
          local common = false
          for _, name in ipairs(names) do common = common or contains(seen, name) end
          if not common then return ("its conditions want two different values of '%s'"):format(field) end
        end
        seen = names
      end
    end
  end
end

--- Why no request can match, or nil.
local function impossible(rule, conditions)
  for _, c in ipairs(rule.commands or NOTHING) do
    for _, group in ipairs(c.flags or {}) do
      if c.without and subset(group, c.without) then
        return ("it wants the flag '%s' both there and not there"):format(group[1])
      end
    end
  end
  if rule.when then
    return sum_of_budgets(rule.when, conditions) or conflict(rule.when, conditions)
  end
end

local function what_instead(program)
  local name = program:match("[^/]*$")
  if WRAPPERS[name] then
    return "write a rule for the command behind it, which is decided as if it stood alone"
  elseif name:find("^python") then
    return ("name what it may run, such as '%s -m pytest *'"):format(program)
  end
  return ("name what it may run, such as '%s FILE *'"):format(program)
end

local function broad_pattern(action, kind, text)
  if is_all(kind, text) then
    return ("allows every %s"):format(BROAD[action]), kind == "command" and "name the programs"
      or kind == "host" and "name the hosts" or "name the directories"
  end
  if kind ~= "command" then return nil end
  local space = text:find(" ", 1, true)
  if space and space <= literal(text) and not INTERPRETERS[part(text, 1, space - 1)]
    and not text:find("/", 1, true) then
    return nil
  end
  local first, rest = text:match("^([^ ]*) ?(.*)$")
  if first:find("[*?]") then
    local name = first:match("^[^*?]*")
    if name == "" then return "allows other programs than its author can know", "name the program" end
    return ("allows every program whose name begins with '%s', such as '%s-x'"):format(name, name),
      ("write '%s' and '%s *', or policy.command { '%s' }"):format(name, name, name)
  end
  local anything = rest == "" or rest:find("^[*?]") or rest:find("^%-[ce]c? ?[*?]")
  if anything and INTERPRETERS[first:match("[^/]*$")] then
    return ("allows '%s', which runs whatever its arguments say"):format(first),
      what_instead(first)
  end
end

local function over_broad(list, rule)
  if rule.effect ~= "allow" or rule.when then return end
  for _, action in ipairs(rule.actions) do
    if BROAD[action] then
      local message, hint
      if rule.match == "any" then
        message, hint = ("allows every %s"):format(BROAD[action]), "give it a pattern"
      end
      for _, text in ipairs(rule.patterns) do
        if not message then message, hint = broad_pattern(action, rule.match, text) end
      end
      for _, c in ipairs(rule.commands or NOTHING) do
        for _, program in ipairs(c.programs) do
          if not message and #c.words == 0 and not c.arguments then
            if program:find("[*?]") then
              message = ("allows every program whose name matches '%s'"):format(program)
              hint = "name the programs"
            elseif INTERPRETERS[program:match("[^/]*$")] then
              message = ("allows '%s', which runs whatever its arguments say"):format(program)
              hint = "name what it may run, with words or arguments"
            end
          end
        end
      end
      if message then
        add(list, "over-broad", rule, "%s; %s, or say accept = 'over-broad'", message, hint)
        return
      end
    end
  end
end

local function unasked(list, rule)
  for _, action in ipairs(rule.actions) do
    if not ASKED[action] then
      add(list, "unasked-action", rule,
        "does nothing yet: no part of this version asks about the action '%s'; "
        .. "say accept = 'unasked-action' to keep it", action)
      return
    end
  end
end

--- Behind so many warnings nobody reads on, and a hint takes a while.
local HINTS_MAX = 100

local function unknown_tool(list, rule, conditions)
  for _, index in ipairs(rule.when or NOTHING) do
    for _, tool in ipairs(conditions[index].tool or {}) do
      if not tool:find("[*?]") and not contains(TOOLS, tool) then
        add(list, "unknown-tool", rule, "speaks of a tool '%s', which there is not%s", tool,
          #list < HINTS_MAX and nearest.hint(tool, TOOLS) or "")
        return
      end
    end
  end
end

--- What the profile denies, or has nothing of: only whole actions, which is what profiles speak of.
local function denied_by(profile)
  local out = {}
  for _, rule in ipairs(profile.rules) do
    if rule.match == "any" and rule.effect == "deny" then
      for _, action in ipairs(rule.actions) do out[action] = rule.reason or "it denies it" end
    end
  end
  if profile.launch and profile.launch.workspace == "none" then
    out["fs.read"], out["fs.write"] = "it has no workspace", "it has no workspace"
  end
  return out
end

local function unrepresentable(list, rule, denied, name)
  if rule.effect == "deny" or #rule.actions ~= 1 then return end
  local why = denied[rule.actions[1]]
  if why then
    add(list, "unrepresentable", rule, "does nothing with the profile '%s': %s; leave it out, choose another "
      .. "profile, or say accept = 'unrepresentable'", name, why)
  end
end

-- ---------------------------------------------------------------------------------------------
-- pairs of rules

--- Covers by action and conditions; a condition on the environment means different things for an
--- allow and a deny, so that rules with one cover nothing.
local function index_rules(rules, conditions)
  local covers = {}
  local function cover_for(action, key)
    local by_key = covers[action]
    if not by_key then
      by_key = {}
      covers[action] = by_key
    end
    local cover = by_key[key]
    if not cover then
      cover = new_cover()
      by_key[key] = cover
    end
    return cover
  end
  for i = 1, #rules do
    local rule = rules[i]
    local skip = false
    for _, index in ipairs(rule.when or NOTHING) do skip = skip or conditions[index].env ~= nil end
    if not skip then
      local key, kind, patterns, commands = key_of(rule.when), rule.match, rule.patterns, rule.commands
      for _, action in ipairs(rule.actions) do
        local cover = cover_for(action, key)
        if kind == "any" then stronger(cover, "any", rule) end
        for k = 1, #patterns do add_pattern(cover, kind, patterns[k], rule) end
        for k = 1, commands and #commands or 0 do add_command(cover, commands[k], rule) end
      end
    end
  end
  return covers
end

local function each_cover(covers, rule, action, fn, a, b)
  local best
  local by_key, star = covers[action], covers["*"]
  local key = key_of(rule.when)
  local plain = by_key and by_key[""]
  if plain then best = fn(plain, rule, a, b) end
  if key ~= "" and by_key and by_key[key] then
    local found = fn(by_key[key], rule, a, b)
    best = better(best, found, rule)
  end
  if action ~= "*" and star then
    for _, k in ipairs { "", key } do
      if star[k] then best = better(best, star[k].any, rule) end
    end
  end
  return best
end

--- What covers each part of a rule: the cover that all of them have at least, how many parts are
--- covered by something stricter, and how many there are.
local function covers_of(covers, rule)
  local weakest, dead, total, one = nil, 0, 0, nil
  local function note(found)
    total = total + 1
    if not found then
      weakest = false
      return
    end
    if RANK[found.effect] > RANK[rule.effect] then
      dead, one = dead + 1, one or found
    end
    if weakest == nil or (weakest and RANK[found.effect] < RANK[weakest.effect]) then weakest = found end
  end
  local commands = rule.commands or NOTHING
  for _, action in ipairs(rule.actions) do
    if rule.match == "any" then
      note(each_cover(covers, rule, action, cover_of_all))
    end
    for k = 1, #rule.patterns do
      note(each_cover(covers, rule, action, cover_of_pattern, rule.match, rule.patterns[k]))
    end
    for k = 1, #commands do
      note(each_cover(covers, rule, action, cover_of_command, commands[k]))
    end
  end
  return weakest or nil, dead, total, one
end

--- Do two rules match exactly the same, as far as their texts tell.
local function same_match(a, b)
  if a.match ~= b.match or key_of(a.when) ~= key_of(b.when) or #a.patterns ~= #b.patterns
    or #(a.commands or {}) ~= #(b.commands or {}) then
    return false
  end
  if not subset(a.actions, b.actions) or not subset(b.actions, a.actions) then return false end
  if not subset(a.patterns, b.patterns) then return false end
  for i, c in ipairs(a.commands or {}) do
    if b.commands[i].shown ~= c.shown then return false end
  end
  return true
end

local function compare(errors, warnings, rule, covers)
  if rule.bundle then return end -- what is extended may be tightened
  local cover, dead, total, one = covers_of(covers, rule)
  if cover and dead == total then
    if same_match(rule, cover) then
      add(errors, "contradictory-rules", rule,
        "%s what rule '%s' (%s) %s; the stricter one wins, so that this "
        .. "one never decides: remove one of them", SAYS[rule.effect], cover.id, place(cover),
          SAYS[cover.effect])
    elseif cover.bundle then
      add(errors, "dead-rule", rule, "never decides: rule '%s' (%s) of the bundle '%s' %s all of it, and the "
        .. "strictest wins; remove it, or%s", cover.id, place(cover), cover.bundle, SAYS[cover.effect],
        cover.effect == "deny" and " copy the bundle" or (" replace = { '%s' }"):format(cover.id))
    else
      add(errors, "dead-rule", rule, "never decides: rule '%s' (%s) %s all of it, and the strictest wins; "
        .. "narrow that one%s, or remove this one", cover.id, place(cover), SAYS[cover.effect],
        cover.effect == "ask" and cover.match == "any" and ", write it with policy.otherwise" or "")
    end
  elseif dead > 0 and one then
    add(warnings, "dead-pattern", rule,
      "has %d of %d patterns that never decide: rule '%s' (%s) %s one of them, "
      .. "and the strictest wins", dead, total, one.id, place(one), SAYS[one.effect])
  elseif cover and cover.effect == rule.effect then
    if same_match(rule, cover) then
      if (rule.line or 0) >= (cover.line or 0) then
        add(warnings, "duplicate-rule", rule, "says what rule '%s' (%s) says; remove one of them", cover.id,
          place(cover))
      end
    elseif not rule.reason then
      add(warnings, "shadowed-rule", rule,
        "adds nothing: rule '%s' (%s) %s all of it; remove it, or give it a "
        .. "reason of its own", cover.id, place(cover), SAYS[cover.effect])
    end
  end
end

local function ordered(list)
  table.sort(list, function(a, b)
    if a.line ~= b.line then return a.line < b.line end
    return a.text < b.text
  end)
  return list
end

--- Errors and warnings of a policy (as policy.lua hands it over) with a profile, each {code, file,
--- line, id, text}, in the order of their lines.
---@param policy table
---@param profile table
---@return table errors, table warnings
function prove.run(policy, profile)
  local errors, warnings, rules = {}, {}, policy.rules
  local conditions, denied = policy.conditions or NOTHING, denied_by(profile)
  local covers = index_rules(rules, conditions)
  local exact = {}
  for i = 1, #rules do
    local rule = rules[i]
    rule.accepts = rule.accepted or NOTHING
    local why = (rule.when or rule.commands) and impossible(rule, conditions)
    if why then
      add(errors, "dead-rule", rule, "can never match: %s", why)
    else
      compare(errors, warnings, rule, covers)
      if not rule.bundle then
        over_broad(warnings, rule)
        unasked(warnings, rule)
        unrepresentable(warnings, rule, denied, profile.name)
        if rule.when then unknown_tool(warnings, rule, conditions) end
      end
    end
    for code, state in pairs(rule.accepts) do
      if state ~= "needed" and not rule.bundle then exact[#exact + 1] = { rule, code } end
    end
  end
  for _, pair in ipairs(exact) do
    add(warnings, "unneeded-accept", pair[1], "accepts the warning '%s', which it does not get; remove that",
      pair[2])
  end
  return ordered(errors), ordered(warnings)
end

return prove
