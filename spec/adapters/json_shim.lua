-- The `json` module of the adapter's sandbox, as strict as the real one: integers stay integers,
-- duplicate keys, bad UTF-8, lone surrogates, NaN and trailing bytes are refused, and a decoded
-- array is written as an array again even if it is empty.
local json = { null = setmetatable({}, { __name = "json.null" }) }
local array_mark = { __name = "json.array" }

function json.array(t)
  return setmetatable(t, array_mark)
end

local escapes = { ['"'] = '"', ["\\"] = "\\", ["/"] = "/", b = "\b", f = "\f", n = "\n", r = "\r", t = "\t" }

local function bad(what)
  error({ json = what }, 0)
end

local function space(s, at)
  return s:find("[^ \t\r\n]", at) or #s + 1
end

local function read_unit(s, at)
  local hex = s:match("^\\u(%x%x%x%x)", at) or bad("bad escape")
  return tonumber(hex, 16), at + 6
end

local function read_string(s, at)
  local out = {}
  at = at + 1
  while true do
    local stop = s:find('["\\%c]', at) or bad("text does not end")
    out[#out + 1] = s:sub(at, stop - 1)
    local c = s:sub(stop, stop)
    if c == '"' then
      return table.concat(out), stop + 1
    elseif c ~= "\\" then
      if c == "\127" then
        out[#out + 1] = c
        at = stop + 1
      else
        bad("control character in text")
      end
    else
      local e = s:sub(stop + 1, stop + 1)
      if escapes[e] then
        out[#out + 1], at = escapes[e], stop + 2
      elseif e == "u" then
        local unit
        unit, at = read_unit(s, stop)
        if unit >= 0xD800 and unit < 0xDC00 then
          local low
          low, at = read_unit(s, at)
          if low < 0xDC00 or low > 0xDFFF then
            bad("lone surrogate")
          end
          unit = 0x10000 + (unit - 0xD800) * 0x400 + low - 0xDC00
        elseif unit == 0 or (unit >= 0xDC00 and unit < 0xE000) then
          bad("lone surrogate or NUL")
        end
        out[#out + 1] = utf8.char(unit)
      else
        bad("bad escape")
      end
    end
  end
end

local read

local function read_list(s, at)
  local out = json.array({})
  at = space(s, at + 1)
  if s:sub(at, at) == "]" then
    return out, at + 1
  end
  while true do
    out[#out + 1], at = read(s, at)
    at = space(s, at)
    local c = s:sub(at, at)
    if c == "]" then
      return out, at + 1
    elseif c ~= "," then
      bad("list does not end")
    end
    at = at + 1
  end
end

local function read_object(s, at)
  local out = {}
  at = space(s, at + 1)
  if s:sub(at, at) == "}" then
    return out, at + 1
  end
  while true do
    at = space(s, at)
    if s:sub(at, at) ~= '"' then
      bad("key expected")
    end
    local key
    key, at = read_string(s, at)
    if out[key] ~= nil then
      bad("duplicate key")
    end
    at = space(s, at)
    if s:sub(at, at) ~= ":" then
      bad("colon expected")
    end
    out[key], at = read(s, at + 1)
    at = space(s, at)
    local c = s:sub(at, at)
    if c == "}" then
      return out, at + 1
    elseif c ~= "," then
      bad("object does not end")
    end
    at = at + 1
  end
end

local words = { ["true"] = true, ["false"] = false, null = json.null }

function read(s, at)
  at = space(s, at)
  local c = s:sub(at, at)
  if c == "{" then
    return read_object(s, at)
  elseif c == "[" then
    return read_list(s, at)
  elseif c == '"' then
    return read_string(s, at)
  end
  local word = s:match("^%a+", at)
  if word and words[word] ~= nil then
    return words[word], at + #word
  end
  local number = s:match("^-?%d[%d.eE+-]*", at) or bad("value expected")
  if number:find("^-?0%d") or not tonumber(number) then
    bad("bad number")
  end
  return math.tointeger(number) or tonumber(number), at + #number
end

function json.decode(text)
  if not utf8.len(text) then
    return nil, "the JSON text is not valid UTF-8"
  end
  local ok, value, at = pcall(read, text, 1)
  if ok and space(text, at) <= #text then
    ok, value = false, { json = "bytes behind the value" }
  end
  if ok then
    return value
  end
  if type(value) ~= "table" then
    error(value, 0)
  end
  return nil, value.json
end

local function quote(text)
  return '"' .. text:gsub('[%c"\\]', function(c)
    return ("\\u%04x"):format(c:byte())
  end) .. '"'
end

function json.encode(value)
  if value == json.null then
    return "null"
  elseif type(value) == "string" then
    return quote(value)
  elseif type(value) ~= "table" then
    assert(type(value) == "boolean" or math.type(value) == "integer", "not JSON: " .. type(value))
    return tostring(value)
  end
  local parts = {}
  if getmetatable(value) == array_mark or #value > 0 then
    for i, item in ipairs(value) do
      parts[i] = json.encode(item)
    end
    return "[" .. table.concat(parts, ",") .. "]"
  end
  local keys = {}
  for key in pairs(value) do
    keys[#keys + 1] = key
  end
  table.sort(keys)
  for i, key in ipairs(keys) do
    parts[i] = quote(key) .. ":" .. json.encode(value[key])
  end
  return "{" .. table.concat(parts, ",") .. "}"
end

return json
