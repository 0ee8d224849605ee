--- Structured commands: what `policy.command { ... }` takes, checked and put into the form that
--- core/policy/command.c matches.

local host = require "bridle.host"
local nearest = require "bridle.nearest"

local command = {}

local KEYS = { flags = true, without = true, arguments = true }
local MAX = { words = 8, list = 256, groups = 64, text = 255, pattern = 1024, shown = 1000 }

local function plain(text, max)
  return type(text) == "string" and text ~= "" and #text <= max and utf8.len(text)
    and not text:find("%c")
end

--- A text or a list of texts, each of at most `max` bytes, as a list; nil if it is neither.
local function list_of(value, max)
  if type(value) == "string" then value = { value } end
  if type(value) ~= "table" or #value == 0 or #value > MAX.list then return nil end
  local list, count = {}, 0
  for _ in pairs(value) do count = count + 1 end
  if count ~= #value then return nil end
  for i = 1, count do
    if not plain(value[i], max) then return nil end
    list[i] = value[i]
  end
  return list
end

local function program_problem(name)
  if name:find(" ", 1, true) then
    return ("the program '%s' has a space in it; write each word on its own: { 'git', 'push' }"):format(name)
  end
  if name:sub(1, 1) == "-" then return ("the program '%s' is an option"):format(name) end
  local base = name:match("[^/]*$")
  if base == "" then return ("the program '%s' is a directory"):format(name) end
  if base ~= name and name:find("[*?]") then
    return ("the program '%s': a path has no wildcards"):format(name)
  end
end

local function word_problem(word)
  if word:sub(1, 1) == "-" then
    return ("'%s' is an option; options go into flags = { '%s' }, wherever they stand"):format(word, word)
  end
  if word:find(" ", 1, true) then
    return ("'%s' has a space in it; write each word on its own: { 'git', 'push' }"):format(word)
  end
end

local function flag_problem(flag)
  if flag:sub(1, 1) ~= "-" or flag == "-" or flag == "--" then
    return ("the flag '%s' must begin with '-', as in '-f' or '--force'"):format(flag)
  end
  if flag:find("[= ]") then
    return ("the flag '%s' is written without its value, as in '--force'"):format(flag)
  end
  if #flag == 3 and flag:sub(2, 2) ~= "-" then
    return ("the flag '%s' looks like two; write { '-%s' }, { '-%s' }, which also finds them together")
      :format(flag, flag:sub(2, 2), flag:sub(3, 3))
  end
end

local function checked(list, problem)
  for i = 1, #list do
    local what = problem(list[i])
    if what then return what end
  end
end

--- { { '-f', '--force' }, { '-r' } }: one of each; a single text is one group of one.
local function flag_groups(value)
  if type(value) == "string" then value = { { value } } end
  if type(value) ~= "table" or #value == 0 or #value > MAX.groups then
    return nil, "'flags' is a list of groups, and one of each must be there: { { '-f', '--force' } }"
  end
  local groups = {}
  for i = 1, #value do
    if type(value[i]) == "string" and #value > 1 then
      return nil, "'flags' lists two flags, and does not say whether it wants one or both; write "
        .. "{ { '-f', '--force' } } for one of them, { { '-r' }, { '-f' } } for both"
    end
    groups[i] = list_of(value[i], MAX.text)
    local what = groups[i] and checked(groups[i], flag_problem)
    if not groups[i] or what then
      return nil, what or "a group of 'flags' is a list of texts, such as { '-f', '--force' }"
    end
  end
  return groups
end

local function joined(list)
  return table.concat(list, "|")
end

--- How a command is shown, and told from others.
local function shown(c)
  local parts = { joined(c.programs) }
  for i = 1, #c.words do parts[#parts + 1] = joined(c.words[i]) end
  for i = 1, #(c.flags or {}) do parts[#parts + 1] = joined(c.flags[i]) end
  if c.without then parts[#parts + 1] = "without " .. joined(c.without) end
  if c.arguments then parts[#parts + 1] = "with " .. joined(c.arguments) end
  local text = table.concat(parts, " ")
  if #text > MAX.shown then text = text:sub(1, utf8.offset(text, 0, MAX.shown) - 1) .. "..." end
  return text
end

--- The same for a command of plain words and flags, without looking closely; nil for others.
local function quick(fields)
  local names, count = host.names, #fields
  local programs, text = names(fields[1])
  if not programs or count > MAX.words + 1 then return nil end
  local words, flags = {}, fields.flags
  for i = 2, count do
    local list, joint = names(fields[i])
    if not list then return nil end
    words[i - 1] = list
    text = text .. " " .. joint
  end
  if flags ~= nil then
    local groups = {}
    if type(flags) ~= "table" or #flags == 0 or #flags > MAX.groups then return nil end
    for i = 1, #flags do
      if type(flags[i]) ~= "table" then return nil end
      local list, joint = names(flags[i], true)
      if not list then return nil end
      groups[i] = list
      text = text .. " " .. joint
    end
    flags = groups
    count = count + 1
  end
  for _ in next, fields do count = count - 1 end
  if count ~= 0 or #text > MAX.shown then return nil end
  return { programs = programs, words = words, flags = flags, shown = text }
end

--- The data of a structured command, or nil and why it is refused.
---@param fields any
---@return table?, string?
function command.make(fields)
  if type(fields) ~= "table" then
    return nil, ("policy.command takes a table, not a %s"):format(type(fields))
  end
  local plain_one = quick(fields)
  if plain_one then return plain_one end
  for key in pairs(fields) do
    if type(key) == "string" and not KEYS[key] then
      return nil, ("'%s' is not a field of policy.command%s"):format(key,
        nearest.hint(key, { "flags", "without", "arguments" }))
    elseif type(key) ~= "string" and (math.type(key) ~= "integer" or key < 1 or key > #fields) then
      return nil, "policy.command lists the program and its sub-command, without gaps: { 'git', 'push' }"
    end
  end
  if #fields == 0 then
    return nil, "policy.command needs a program, as in policy.command { 'git', 'push' }"
  end
  if #fields > MAX.words + 1 then
    return nil, ("policy.command takes a program and at most %d words"):format(MAX.words)
  end
  local c = { words = {} }
  c.programs = list_of(fields[1], MAX.text)
  if not c.programs then return nil, "the program of policy.command is a name or a list of names" end
  local what = checked(c.programs, program_problem)
  for i = 2, #fields do
    local words = list_of(fields[i], MAX.text)
    if not words then return nil, "a word of policy.command is a text, or a list of texts for one of them" end
    what = what or checked(words, word_problem)
    c.words[i - 1] = words
  end
  if what then return nil, what end
  if fields.flags ~= nil then
    c.flags, what = flag_groups(fields.flags)
    if what then return nil, what end
  end
  if fields.without ~= nil then
    c.without = list_of(fields.without, MAX.text)
    if not c.without then return nil, "'without' is a flag or a list of flags, none of which is there" end
    what = checked(c.without, flag_problem)
    if what then return nil, what end
  end
  if fields.arguments ~= nil then
    c.arguments = list_of(fields.arguments, MAX.pattern)
    if not c.arguments then return nil, "'arguments' is a pattern or a list of patterns" end
  end
  c.shown = shown(c)
  return c
end

local PROGRAM_KEYS = { "options", "values", "unsafe", "rewrites", "anywhere" }

--- Programs of a bundle: name to options; nil and why they are refused.
---@param value any
---@return table?, string?
function command.programs(value)
  if type(value) ~= "table" then return nil, "'programs' maps names of programs to their global options" end
  local out = {}
  for name, fields in pairs(value) do
    if not plain(name, MAX.text) or name:find("[/*? ]") or name:sub(1, 1) == "-" then
      return nil, "a key of 'programs' is the name of a program, without a path"
    end
    if type(fields) ~= "table" then return nil, ("programs['%s'] is a table of options"):format(name) end
    local copy = {}
    for key, list in pairs(fields) do
      local known = false
      for _, k in ipairs(PROGRAM_KEYS) do known = known or k == key end
      if not known then
        return nil, ("'%s' is not a field of programs['%s']%s"):format(tostring(key), name,
          nearest.hint(tostring(key), PROGRAM_KEYS))
      end
      if key == "anywhere" then
        if type(list) ~= "boolean" then return nil,
          ("'anywhere' of programs['%s'] is true or false"):format(name) end
        copy.anywhere = list
      else
        copy[key] = list_of(list, MAX.text)
        local what = copy[key] and key ~= "rewrites" and checked(copy[key], function(flag)
          if flag:sub(1, 1) ~= "-" or flag == "-" or flag == "--" or flag:find("[= ]") then
            return ("'%s' of programs['%s'] is no option, such as '-C' or '--dir'"):format(flag, name)
          end
        end)
        if not copy[key] or what then
          return nil, what or ("'%s' of programs['%s'] is a list of texts"):format(key, name)
        end
      end
    end
    out[name] = copy
  end
  return out
end

return command
