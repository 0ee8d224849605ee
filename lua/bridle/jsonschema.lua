--- JSON Schema, as far as `bridle observe` promises it: the types, bounds and combinations of draft 2020-12,
--- and `$ref` to `$defs` of the same document. A keyword that is not here is refused by name before anything
--- runs, for what is not checked must not look checked. There is no regular expression (`pattern`,
--- `patternProperties`, `format`): whoever wrote the schema may not decide how long a match takes.
---
--- Each pair of a schema and a place in the value is looked at once, so the time is bounded by the product
--- of their sizes, however schemas refer to each other; and the product has a limit, too.

local json = require "json"
local schema = require "bridle.schema"
local nearest = require "bridle.nearest"

local jsonschema = {}

local MAX = { schemas = 2000, depth = 32, words = 1000, pairs = 1000000 }
local TYPES = { "array", "boolean", "integer", "null", "number", "object", "string" }
local DRAFTS = { ["https://json-schema.org/draft/2020-12/schema"] = true,
  ["http://json-schema.org/draft-07/schema#"] = true, ["http://json-schema.org/draft-07/schema"] = true }
--- Say something to people, and nothing to a check.
local NOTES = { title = true, description = true, default = true, examples = true, deprecated = true,
  readOnly = true, writeOnly = true, ["$comment"] = true }

-- ---- values ------------------------------------------------------------------------------------

local function kind_of(value)
  if value == json.null then return "null" end
  if type(value) == "table" then return json.is_array(value) and "array" or "object" end
  return type(value)
end

local function is_integer(value)
  return type(value) == "number" and math.tointeger(value) ~= nil
end

--- A place in the value: what is there, what was found out about it, and the places in it.
local function place(value)
  return { value = value, kind = kind_of(value), inside = {}, known = {} }
end

local function inner(at, key)
  local found = at.inside[key]
  if not found then
    found = place(at.value[key])
    at.inside[key] = found
  end
  return found
end

--- A text that is the same for equal values and for no others.
local function canonical(at)
  if at.text then return at.text end
  local value, kind = at.value, at.kind
  local text
  if kind == "string" then
    text = ("%d:%s"):format(#value, value)
  elseif kind == "number" then
    text = ("#%s;"):format(math.tointeger(value) or ("%.17g"):format(value))
  elseif kind == "array" then
    local parts = {}
    for i = 1, #value do parts[i] = canonical(inner(at, i)) end
    text = "[" .. table.concat(parts) .. "]"
  elseif kind == "object" then
    local parts = {}
    for i, key in ipairs(schema.keys(value)) do
      parts[i] = ("%d:%s"):format(#key, key) .. canonical(inner(at, key))
    end
    text = "{" .. table.concat(parts) .. "}"
  else
    text = tostring(kind == "null" and "null" or value)
  end
  at.text = text
  return text
end

-- ---- one schema --------------------------------------------------------------------------------
-- A compiled schema is a list of checks. Each gets the run, the place and its path, and gives what is
-- wrong, or nothing.

local function named(path)
  return path == "" and "the value" or ("'%s'"):format(path)
end

local function wrong(path, text, ...)
  return ("%s %s"):format(named(path), text:format(...))
end

--- What is wrong with the value at that place; false if nothing is.
local function judge(run, node, at, path)
  local known = at.known[node.id]
  if known ~= nil then return known end
  run.pairs = run.pairs + 1
  if run.pairs > MAX.pairs then
    schema.fail(path, "the value and its schema are too large together", "LIMIT_EXCEEDED")
  end
  local found = false
  for _, check in ipairs(node.checks) do
    found = check(run, at, path)
    if found then break end
  end
  at.known[node.id] = found or false
  return found or false
end

local compile -- of a schema inside of another

local function fail(path, text, ...)
  local at = path == "" and "top" or ("'%s'"):format(path)
  schema.fail(path, ("the schema's %s: %s"):format(at, text:format(...)), "INVALID_ARGUMENTS")
end

local function add(node, check)
  node.checks[#node.checks + 1] = check
end

local function list(value, path, min, max)
  if kind_of(value) ~= "array" then fail(path, "it must be a list") end
  if #value < min then fail(path, "it must not be empty") end
  if #value > max then fail(path, "it has more than %d elements", max) end
  return value
end

local function object(value, path)
  if kind_of(value) ~= "object" then fail(path, "it must be an object") end
  return value
end

local function count(value, path)
  if not is_integer(value) or value < 0 then fail(path, "it must be a whole number, and not negative") end
  return math.tointeger(value)
end

local function number(value, path)
  if kind_of(value) ~= "number" then fail(path, "it must be a number") end
  return value
end

local function inside(ctx, list_of, path, node)
  local out = {}
  for i, one in ipairs(list(list_of, path, 1, MAX.words)) do
    out[i] = compile(ctx, one, schema.join(path, i))
    node.same[#node.same + 1] = out[i]
  end
  return out
end

local keywords = {}

keywords["$schema"] = function(_, _, value, path)
  if type(value) ~= "string" or not DRAFTS[value] then
    fail(path, "it is not a draft that is known here, such as 2020-12")
  end
end

keywords["$ref"] = function(ctx, node, value, path)
  local target = type(value) == "string" and ctx:find(value, path)
  if not target then fail(path, "it must be '#', or '#/$defs/NAME' of this schema") end
  node.same[#node.same + 1] = target
  add(node, function(run, at, where) return judge(run, target, at, where) end)
end

local function definitions(ctx, _, value, path)
  for _, name in ipairs(schema.keys(object(value, path))) do
    ctx:define(("%s/%s"):format(path, name), value[name], schema.join(path, name))
  end
end
keywords["$defs"] = definitions
keywords.definitions = definitions

function keywords.type(_, node, value, path)
  local want, names = {}, type(value) == "string" and { value } or list(value, path, 1, #TYPES)
  for i, name in ipairs(names) do
    local known = false
    for _, each in ipairs(TYPES) do known = known or each == name end
    if not known then
      fail(type(value) == "string" and path or schema.join(path, i), "it must be one of '%s'",
        table.concat(TYPES, "', '"))
    end
    want[name] = true
  end
  local text = #names == 1 and names[1] or table.concat(names, " or ")
  add(node, function(_, at, where)
    if want[at.kind] or (want.integer and is_integer(at.value)) then return nil end
    return wrong(where, "must be of type %s, and is of type %s", text, at.kind)
  end)
end

local function one_of(node, values)
  local texts = {}
  for _, value in ipairs(values) do texts[canonical(place(value))] = true end
  add(node, function(_, at, where)
    if texts[canonical(at)] then return nil end
    return wrong(where, #values == 1 and "is not the value that the schema names"
      or "is not one of the values that the schema names")
  end)
end

function keywords.enum(_, node, value, path)
  one_of(node, list(value, path, 1, MAX.words))
end

function keywords.const(_, node, value)
  one_of(node, { value })
end

local function bound(kind, measure, holds, text, read)
  return function(_, node, value, path)
    local limit = read(value, path)
    add(node, function(_, at, where)
      if at.kind ~= kind or holds(measure(at), limit) then return nil end
      return wrong(where, text, limit)
    end)
  end
end

local function at_least(have, limit) return have >= limit end
local function at_most(have, limit) return have <= limit end
local function above(have, limit) return have > limit end
local function below(have, limit) return have < limit end
local function itself(at) return at.value end
local function characters(at) return utf8.len(at.value) or #at.value end
local function elements(at) return #at.value end
local function members(at)
  at.size = at.size or #schema.keys(at.value)
  return at.size
end

keywords.minimum = bound("number", itself, at_least, "is less than %s", number)
keywords.maximum = bound("number", itself, at_most, "is more than %s", number)
keywords.exclusiveMinimum = bound("number", itself, above, "is not more than %s", number)
keywords.exclusiveMaximum = bound("number", itself, below, "is not less than %s", number)
keywords.minLength = bound("string", characters, at_least, "has fewer than %d characters", count)
keywords.maxLength = bound("string", characters, at_most, "has more than %d characters", count)
keywords.minItems = bound("array", elements, at_least, "has fewer than %d elements", count)
keywords.maxItems = bound("array", elements, at_most, "has more than %d elements", count)
keywords.minProperties = bound("object", members, at_least, "has fewer than %d properties", count)
keywords.maxProperties = bound("object", members, at_most, "has more than %d properties", count)

local function is_multiple(have, of)
  if is_integer(have) and is_integer(of) then return math.tointeger(have) % math.tointeger(of) == 0 end
  local times = have / of
  return times == math.floor(times) and times - times == 0
end

function keywords.multipleOf(_, node, value, path)
  if number(value, path) <= 0 then fail(path, "it must be more than 0") end
  add(node, function(_, at, where)
    if at.kind ~= "number" or is_multiple(at.value, value) then return nil end
    return wrong(where, "is not a multiple of %s", value)
  end)
end

function keywords.uniqueItems(_, node, value, path)
  if type(value) ~= "boolean" then fail(path, "it must be true or false") end
  if not value then return end
  add(node, function(_, at, where)
    if at.kind ~= "array" then return nil end
    local seen = {}
    for i = 1, #at.value do
      local text = canonical(inner(at, i))
      if seen[text] then return wrong(where, "has an element twice") end
      seen[text] = true
    end
  end)
end

function keywords.prefixItems(ctx, node, value, path)
  local of = {}
  for i, one in ipairs(list(value, path, 1, MAX.words)) do of[i] = compile(ctx, one, schema.join(path, i)) end
  add(node, function(run, at, where)
    for i = 1, at.kind == "array" and math.min(#of, #at.value) or 0 do
      local found = judge(run, of[i], inner(at, i), schema.join(where, i))
      if found then return found end
    end
  end)
end

function keywords.items(ctx, node, value, path, whole)
  if kind_of(value) == "array" then fail(path, "a list of schemas is called 'prefixItems'") end
  local of, first = compile(ctx, value, path), 1
  if kind_of(whole.prefixItems) == "array" then first = #whole.prefixItems + 1 end
  add(node, function(run, at, where)
    for i = first, at.kind == "array" and #at.value or 0 do
      local found = judge(run, of, inner(at, i), schema.join(where, i))
      if found then return found end
    end
  end)
end

function keywords.properties(ctx, node, value, path)
  local names, of = schema.keys(object(value, path)), {}
  for i, name in ipairs(names) do of[i] = compile(ctx, value[name], schema.join(path, name)) end
  add(node, function(run, at, where)
    if at.kind ~= "object" then return nil end
    for i, name in ipairs(names) do
      if at.value[name] ~= nil then
        local found = judge(run, of[i], inner(at, name), schema.join(where, name))
        if found then return found end
      end
    end
  end)
end

--- Names that the schema does not have come from a model: they are not repeated.
function keywords.additionalProperties(ctx, node, value, path, whole)
  local of = compile(ctx, value, path)
  local known = kind_of(whole.properties) == "object" and whole.properties or {}
  add(node, function(run, at, where)
    for _, name in ipairs(at.kind == "object" and schema.keys(at.value) or {}) do
      if known[name] == nil then
        local found = judge(run, of, inner(at, name), where)
        if found then
          return value == false and wrong(where, "has a property that the schema does not name") or found
        end
      end
    end
  end)
end

function keywords.propertyNames(ctx, node, value, path)
  local of = compile(ctx, value, path)
  add(node, function(run, at, where)
    for _, name in ipairs(at.kind == "object" and schema.keys(at.value) or {}) do
      if judge(run, of, place(name), where) then
        return wrong(where, "has a property whose name does not fit the schema")
      end
    end
  end)
end

function keywords.required(_, node, value, path)
  local names = list(value, path, 0, MAX.words)
  for i, name in ipairs(names) do
    if type(name) ~= "string" then fail(schema.join(path, i), "it must be a text") end
  end
  add(node, function(_, at, where)
    for _, name in ipairs(at.kind == "object" and names or {}) do
      if at.value[name] == nil then return wrong(where, "lacks the property '%s'", name) end
    end
  end)
end

function keywords.allOf(ctx, node, value, path)
  local all = inside(ctx, value, path, node)
  add(node, function(run, at, where)
    for _, one in ipairs(all) do
      local found = judge(run, one, at, where)
      if found then return found end
    end
  end)
end

local function matching(run, all, at, where)
  local n = 0
  for _, one in ipairs(all) do
    if not judge(run, one, at, where) then n = n + 1 end
  end
  return n
end

function keywords.anyOf(ctx, node, value, path)
  local all = inside(ctx, value, path, node)
  add(node, function(run, at, where)
    if matching(run, all, at, where) > 0 then return nil end
    return wrong(where, "fits none of the %d schemas of 'anyOf'", #all)
  end)
end

function keywords.oneOf(ctx, node, value, path)
  local all = inside(ctx, value, path, node)
  add(node, function(run, at, where)
    local n = matching(run, all, at, where)
    if n == 1 then return nil end
    return wrong(where, "fits %d of the %d schemas of 'oneOf', not one", n, #all)
  end)
end

keywords["not"] = function(ctx, node, value, path)
  local other = compile(ctx, value, path)
  node.same[#node.same + 1] = other
  add(node, function(run, at, where)
    if judge(run, other, at, where) then return nil end
    return wrong(where, "fits the schema of 'not'")
  end)
end

local function branch(ctx, node, value, path)
  local other = compile(ctx, value, path)
  node.same[#node.same + 1] = other
  return other
end

keywords["if"] = function(ctx, node, value, path, whole)
  local test = branch(ctx, node, value, path)
  local base = path:sub(1, -3) -- without "if"
  local yes = whole["then"] ~= nil and branch(ctx, node, whole["then"], base .. "then")
  local no = whole["else"] ~= nil and branch(ctx, node, whole["else"], base .. "else")
  add(node, function(run, at, where)
    local way = no
    if not judge(run, test, at, where) then way = yes end
    return way and judge(run, way, at, where)
  end)
end

--- Both belong to "if"; without it they would say nothing.
local function belongs_to_if(_, _, _, path, whole)
  if whole["if"] == nil then fail(path, "there is no 'if' beside it") end
end
keywords["then"] = belongs_to_if
keywords["else"] = belongs_to_if

-- ---- the whole schema --------------------------------------------------------------------------

local function known_words()
  local words = schema.keys(keywords)
  for word in pairs(NOTES) do words[#words + 1] = word end
  table.sort(words)
  return words
end

local function fill(ctx, node, value, path)
  if value == true then return end
  if value == false then
    add(node, function(_, _, where) return wrong(where, "is not allowed by the schema") end)
    return
  end
  for _, word in ipairs(schema.keys(object(value, path))) do
    local read = keywords[word]
    if read then
      read(ctx, node, value[word], schema.join(path, word), value)
    elseif not NOTES[word] then
      fail(path, "the keyword '%s' is not supported%s", (word:gsub("%c", "?")),
        nearest.hint(word, known_words()))
    end
  end
end

function compile(ctx, value, path)
  ctx.depth, ctx.schemas = ctx.depth + 1, ctx.schemas + 1
  if ctx.depth > MAX.depth then fail(path, "it is nested deeper than %d schemas", MAX.depth) end
  if ctx.schemas > MAX.schemas then fail(path, "there are more than %d schemas", MAX.schemas) end
  local node = { id = ctx.schemas, path = path, checks = {}, same = {} }
  if path == "" then ctx.top = node end
  fill(ctx, node, value, path)
  ctx.depth = ctx.depth - 1
  return node
end

--- A schema of $defs: compiled when all of the document was read, since they may name each other.
local function define(ctx, pointer, value, path)
  if not ctx.defined[pointer] then
    local node = { path = path, checks = {}, same = {} }
    ctx.defined[pointer] = node
    ctx.waiting[#ctx.waiting + 1] = { node = node, value = value, path = path }
  end
  return ctx.defined[pointer]
end

local function find(ctx, ref)
  if ref == "#" then return ctx.top end
  local where, name = ref:match("^#/([^/]+)/([^/]+)$")
  if where ~= "$defs" and where ~= "definitions" then return nil end
  name = name:gsub("~1", "/"):gsub("~0", "~")
  local all = kind_of(ctx.root) == "object" and ctx.root[where]
  if kind_of(all) ~= "object" or all[name] == nil then return nil end
  return ctx:define(("%s/%s"):format(schema.join("", where), name), all[name],
    schema.join(schema.join("", where), name))
end

--- Two schemas that only ever send a value to each other decide nothing.
local function check_circles(node, state)
  state[node] = "open"
  for _, other in ipairs(node.same) do
    if state[other] == "open" then fail(node.path, "it refers to itself, for the same value") end
    if not state[other] then check_circles(other, state) end
  end
  state[node] = "done"
end

local function compile_all(value)
  local ctx = { root = value, schemas = 0, depth = 0, defined = {}, waiting = {}, define = define,
    find = find }
  local all = { compile(ctx, value, "") }
  while #ctx.waiting > 0 do
    local one = table.remove(ctx.waiting)
    ctx.schemas = ctx.schemas + 1
    if ctx.schemas > MAX.schemas then fail(one.path, "there are more than %d schemas", MAX.schemas) end
    one.node.id = ctx.schemas
    all[#all + 1] = one.node
    ctx.depth = 1
    fill(ctx, one.node, one.value, one.path)
  end
  local state = {}
  for _, node in ipairs(all) do
    if not state[node] then check_circles(node, state) end
  end
  return all[1]
end

--- Compile a schema, which is a decoded JSON value.
---@param value any
---@return table|nil compiled
---@return string? message
---@return string? code
function jsonschema.compile(value)
  local node, failure = schema.catch(compile_all, value)
  if not node then return nil, failure.message, failure.code end
  return node
end

--- Is this what the schema says? The message names the place, and nothing of what is there.
---@param compiled table
---@param value any a decoded JSON value
---@return boolean|nil
---@return string? message
---@return string? code
function jsonschema.validate(compiled, value)
  local found, failure = schema.catch(judge, { pairs = 0 }, compiled, place(value), "")
  if found == nil then return nil, failure.message, failure.code end
  if found then return nil, found, "INVALID_ARGUMENTS" end
  return true
end

return jsonschema
