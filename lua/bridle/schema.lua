--- Strict checks of documents: every failure names the path, what was expected and what is there.

local json = require "json"
local nearest = require "bridle.nearest"

local schema = {}

-- Are all of its keys the numbers from 1 on? `#` alone may be any border.
local function has_no_gap(value)
  local count = 0
  for _ in pairs(value) do count = count + 1 end
  for i = 1, count do
    if value[i] == nil then return false end
  end
  return true
end

--- What a value is, for messages.
---@param value any
---@return string
function schema.describe(value)
  local kind = type(value)
  if value == nil then return "nothing" end
  if value == json.null then return "null" end
  if kind == "table" then
    if not json.is_array(value) and #value == 0 then return "a mapping" end
    for key in pairs(value) do
      if type(key) == "string" then
        return ("a list that also has the key '%s'"):format((key:sub(1, 60):gsub("%c", "?")))
      end
    end
    return has_no_gap(value) and "a list" or "a list with gaps"
  end
  if kind == "string" then
    local shown = #value > 60 and value:sub(1, 57) .. "..." or value
    return ("the text %q"):format((shown:gsub("[%c]", "?")))
  end
  if kind == "boolean" or kind == "number" then return ("%s"):format(value) end
  return "a " .. kind
end

--- The path of a value inside another; core/script/yaml.c writes the same.
---@param path string
---@param key string|integer
---@return string
function schema.join(path, key)
  if math.type(key) == "integer" then return ("%s[%d]"):format(path, key) end
  if key:find("^[%a_-][%w_-]*$") then return path == "" and key or path .. "." .. key end
  return ("%s['%s']"):format(path, key)
end

--- Refuse the document. `code` is a name of BR_CODES.
---@param path string
---@param message string
---@param code string?
function schema.fail(path, message, code)
  error({ failure = true, path = path, message = message, code = code }, 0)
end

local function at(path)
  return path == "" and "the document" or ("'%s'"):format(path)
end

--- Expected and found, as one refusal.
---@param path string
---@param expected string
---@param value any
---@param code string?
function schema.expected(path, expected, value, code)
  schema.fail(path, ("%s: expected %s, found %s"):format(at(path), expected, schema.describe(value)), code)
end

--- Run f; its results, or nil and the failure. Other errors pass through.
---@param f function
---@return any, table?
function schema.catch(f, ...)
  local result = table.pack(pcall(f, ...))
  if result[1] then return table.unpack(result, 2, result.n) end
  local err = result[2]
  if type(err) == "table" and rawget(err, "failure") then return nil, err end
  error(err, 0)
end

--- The keys of a mapping, sorted.
---@param t table
---@return string[]
function schema.keys(t)
  local keys = {}
  for key in pairs(t) do keys[#keys + 1] = key end
  table.sort(keys)
  return keys
end

local function is_mapping(value)
  if type(value) ~= "table" or json.is_array(value) then return false end
  for key in pairs(value) do
    if type(key) ~= "string" then return false end
  end
  return true
end

--- A mapping with the keys of `fields` ("required" or "optional") and no others.
---@param value any
---@param path string
---@param fields table<string, string>
---@return table
function schema.object(value, path, fields)
  if not is_mapping(value) then schema.expected(path, "a mapping", value) end
  for _, key in ipairs(schema.keys(value)) do
    if not fields[key] then
      schema.fail(schema.join(path, key), ("'%s' is not a key here%s"):format(
        schema.join(path, key), nearest.hint(key, schema.keys(fields))))
    end
  end
  for _, key in ipairs(schema.keys(fields)) do
    if fields[key] == "required" and value[key] == nil then
      schema.fail(path, ("%s lacks the key '%s'"):format(at(path), key))
    end
  end
  return value
end

--- A mapping with any text keys.
---@param value any
---@param path string
---@return table
function schema.map(value, path)
  if not is_mapping(value) then schema.expected(path, "a mapping", value) end
  return value
end

--- A list of at least `min` and at most `max` elements.
---@param value any
---@param path string
---@param min integer
---@param max integer
---@return table
function schema.list(value, path, min, max)
  local is = type(value) == "table" and (json.is_array(value) or #value > 0 or next(value) == nil)
  is = is and (json.is_array(value) or has_no_gap(value))
  if not is then schema.expected(path, "a list", value) end
  if #value < min then
    schema.fail(path, ("%s needs at least %d element%s"):format(at(path), min, min == 1 and "" or "s"))
  end
  if #value > max then schema.fail(path, ("%s has more than %d elements"):format(at(path), max)) end
  return value
end

--- A text of 1 to `max` bytes, without control characters other than, if `lines`, \n and \t.
---@param value any
---@param path string
---@param max integer
---@param lines boolean?
---@param code string?
---@return string
function schema.text(value, path, max, lines, code)
  if type(value) ~= "string" then schema.expected(path, "a text", value, code) end
  if value == "" then schema.fail(path, at(path) .. " must not be empty", code) end
  if #value > max then
    schema.fail(path, ("%s is longer than %d bytes"):format(at(path), max), code)
  end
  if not utf8.len(value) then schema.fail(path, at(path) .. " is not valid UTF-8", code) end
  local plain = lines and value:gsub("[\n\t]", "") or value
  if plain:find("%c") then
    schema.fail(path, at(path) .. " holds a control character", code)
  end
  return value
end

--- An integer within the range.
---@param value any
---@param path string
---@param min integer
---@param max integer
---@return integer
function schema.integer(value, path, min, max)
  if math.type(value) ~= "integer" or value < min or value > max then
    schema.expected(path, ("an integer from %d to %d"):format(min, max), value)
  end
  return value
end

--- One word of a list.
---@param value any
---@param path string
---@param words string[]
---@return string
function schema.word(value, path, words)
  for _, word in ipairs(words) do
    if value == word then return value end
  end
  local near = type(value) == "string" and nearest.word(value, words)
  schema.fail(path, ("%s: expected one of '%s', found %s%s"):format(at(path), table.concat(words, "', '"),
    schema.describe(value), near and ("; did you mean '%s'?"):format(near) or ""))
end

--- Kebab-case: lower-case words and digits, joined by single hyphens.
---@param value string
---@return boolean
function schema.is_kebab(value)
  return #value <= 128 and not value:find("[^a-z0-9-]") and not value:find("^-")
    and not value:find("-$") and not value:find("--", 1, true) and value ~= ""
end

return schema
