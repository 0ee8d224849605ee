--- The patterns of rules and manifests, as far as text alone can tell that one is wrong. What they
--- match is decided in C (core/policy).

local pattern = {}

pattern.MAX = 1024

--- Which matcher the subjects of an action are for.
---@param action string
---@return "command"|"path"|"host"|"text"
function pattern.matcher(action)
  if action == "process.exec" then return "command" end
  if action:sub(1, 3) == "fs." then return "path" end
  if action == "network" then return "host" end
  return "text"
end

local check = {}

function check.path(p)
  if p == "." then return nil end -- the workspace itself
  if p:sub(1, 1) == "/" then return "paths are relative to the workspace; drop the leading '/'" end
  if p:find("\\", 1, true) then return "'\\' separates nothing; write '/'" end
  if p:sub(-1) == "/" then return ("a rule for a directory is written '%s**'"):format(p) end
  for segment in (p .. "/"):gmatch("([^/]*)/") do
    if segment == "" or segment == "." or segment == ".." then
      return ("a path never has the segment '%s', so that it matches nothing"):format(segment)
    end
  end
end

local operators = { ["&&"] = true, ["||"] = true, ["|"] = true, [";"] = true, ["&"] = true,
  [">"] = true, [">>"] = true, ["<"] = true }

function check.command(p)
  if p:find("^ ") or p:find(" $") or p:find("  ", 1, true) then
    return "words are separated by one space"
  end
  for word in p:gmatch("%S+") do
    if operators[word] or word:find(";$") then
      return ("it is matched against one simple command, which never has '%s' in it"):format(word)
    end
  end
end

function check.host(p)
  if p:find("://", 1, true) then return "name the host alone, such as 'example.org' or 'example.org:443'" end
  if p:find("[^%w%.%*:_%-%[%]]") then return "a host has letters, digits, '.', '-', ':' and '*' only" end
  if p:find("%u") then return "hosts are written in lower case" end
  if p:find("[.:]$") then return ("nothing is asked about ends with '%s'"):format(p:sub(-1)) end
end

function check.text() end

--- Nil, or why the pattern is refused.
---@param kind "command"|"path"|"host"|"text"
---@param value any
---@return string?
function pattern.problem(kind, value)
  if type(value) ~= "string" then return "it is not a text" end
  if kind == "command" and #value <= pattern.MAX and value:find("^%w[%w._/*-]* ?[%w._/*-]*$") then
    return value:sub(-1) == " " and "words are separated by one space" or nil
  end
  if value == "" then return "it is empty" end
  if #value > pattern.MAX then return ("it is longer than %d bytes"):format(pattern.MAX) end
  if not utf8.len(value) then return "it is not valid UTF-8" end
  if value:find("%c") then return "it holds a control character" end
  return check[kind](value)
end

return pattern
