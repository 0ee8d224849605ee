package.path = (os.getenv("BRIDLE_SOURCE") or ".") .. "/spec/support/?.lua;" .. package.path
local sandbox = require "sandbox"
local json = sandbox.json

-- Which lines of the module were run, of all that hold code: the specs below reach each of them.
local lines, ran = {}, {}
local function watch(event, line)
  local info = debug.getinfo(2, "S")
  if event == "line" and info.source:find("bridle/jsonschema.lua", 1, true) then ran[line] = true end
end
local jsonschema, visit
do
  local path = (os.getenv("BRIDLE_SOURCE") or ".") .. "/lua/bridle/jsonschema.lua"
  local chunk = assert(loadfile(path))
  local function collect(f)
    for line in pairs(debug.getinfo(f, "L").activelines) do lines[line] = true end
  end
  debug.sethook(watch, "l")
  jsonschema = chunk()
  debug.sethook()
  collect(chunk)
  local seen = {}
  function visit(value)
    if seen[value] then return end
    seen[value] = true
    if type(value) == "function" and debug.getinfo(value, "S").source:find("jsonschema.lua", 1, true) then
      collect(value)
      for i = 1, 60 do
        local name, up = debug.getupvalue(value, i)
        if not name then break end
        if up ~= nil then visit(up) end
      end
    elseif type(value) == "table" then
      for _, each in pairs(value) do
        if each ~= nil then visit(each) end
      end
    end
  end
  visit(jsonschema)
end

local function watched(f, ...)
  debug.sethook(watch, "l")
  local result = table.pack(f(...))
  debug.sethook()
  return table.unpack(result, 1, result.n)
end

local function compile(text)
  local node, message, code = watched(jsonschema.compile, json.decode(text))
  if node then visit(node) end -- its checks
  return node, message, code
end

local function check(text, value)
  local node, message = compile(text)
  if not node then error("the schema was refused: " .. message, 2) end
  return watched(jsonschema.validate, node, json.decode(value))
end

local function accepts(text, ...)
  for _, value in ipairs { ... } do
    local ok, message = check(text, value)
    assert(ok == true, ("%s refuses %s: %s"):format(text, value, message))
  end
end

local function refuses(text, value, want)
  local ok, message, code = check(text, value)
  assert.is_nil(ok, ("%s accepts %s"):format(text, value))
  assert.equal("INVALID_ARGUMENTS", code)
  assert(message:find(want, 1, true), ("%s: %s"):format(text, message))
end

local function unusable(text, want)
  local node, message, code = compile(text)
  assert.is_nil(node, text)
  assert.equal("INVALID_ARGUMENTS", code)
  assert(message:find(want, 1, true), ("%s: %s"):format(text, message))
end

describe("a JSON Schema", function()
  it("may be true, false or empty", function()
    accepts("true", "1", "null", "[]")
    accepts("{}", "1", "{}")
    refuses("false", "1", "not allowed by the schema")
  end)

  it("has types", function()
    local of = { array = { "[]", "[1]" }, object = { "{}", '{"a":1}' }, string = { '""' }, null = { "null" },
      boolean = { "true", "false" }, integer = { "1", "-5", "2.0" }, number = { "1", "1.5" } }
    for name, values in pairs(of) do
      accepts(('{"type":"%s"}'):format(name), table.unpack(values))
      for other, others in pairs(of) do
        if other ~= name and not (name == "number" and other == "integer") then
          refuses(('{"type":"%s"}'):format(name), others[#others == 2 and other == "number" and 2 or 1] ,
            "must be of type " .. name)
        end
      end
    end
    accepts('{"type":["string","null"]}', '"a"', "null")
    refuses('{"type":["string","null"]}', "1", "of type string or null, and is of type number")
    unusable('{"type":"text"}', "'array', 'boolean'")
    unusable('{"type":["string","x"]}', "'type[2]'")
    unusable('{"type":[]}', "must not be empty")
    unusable('{"type":1}', "must be a list")
  end)

  it("has values", function()
    local text = '{"enum":[1,"a",null,true,{"b":[1,{}],"a":2.5},[]]}'
    accepts(text, "1", "1.0", '"a"', "null", "true", '{"a":2.5,"b":[1,{}]}', "[]")
    for _, value in ipairs { "2", '"1"', "false", '{"a":2.5}', "{}", '{"a":2.5,"b":[{},1]}' } do
      refuses(text, value, "one of the values")
    end
    accepts('{"const":"x"}', '"x"')
    refuses('{"const":"x"}', '"y"', "not the value")
    unusable('{"enum":[]}', "must not be empty")
    unusable('{"enum":{}}', "must be a list")
  end)

  it("has bounds of numbers", function()
    for _, row in ipairs {
      { '{"minimum":3}', "3", "2", "less than 3" },
      { '{"maximum":3}', "3", "4", "more than 3" },
      { '{"exclusiveMinimum":3}', "3.5", "3", "not more than 3" },
      { '{"exclusiveMaximum":3}', "2.5", "3", "not less than 3" },
      { '{"multipleOf":3}', "9", "10", "multiple of 3" },
      { '{"multipleOf":0.5}', "1.5", "1.25", "multiple of 0.5" },
      { '{"multipleOf":2}', "4.0", "3.0", "multiple of 2" },
    } do
      accepts(row[1], row[2], '"a text"', "null")
      refuses(row[1], row[3], row[4])
    end
    refuses('{"multipleOf":1e-300}', "1e300", "multiple of")
    unusable('{"minimum":"3"}', "must be a number")
    unusable('{"multipleOf":0}', "more than 0")
    unusable('{"exclusiveMinimum":true}', "must be a number")
  end)

  it("has sizes", function()
    for _, row in ipairs {
      { '{"minLength":2}', '"äö"', '"ä"', "fewer than 2 characters" },
      { '{"maxLength":2}', '"äö"', '"abc"', "more than 2 characters" },
      { '{"minItems":1}', "[1]", "[]", "fewer than 1 elements" },
      { '{"maxItems":1}', "[1]", "[1,2]", "more than 1 elements" },
      { '{"minProperties":1}', '{"a":1}', "{}", "fewer than 1 properties" },
      { '{"maxProperties":1}', '{"a":1}', '{"a":1,"b":2}', "more than 1 properties" },
      { '{"uniqueItems":true}', '[1,"1",[1],{"a":1}]', '[{"a":1,"b":2},{"b":2,"a":1}]', "twice" },
    } do
      accepts(row[1], row[2], "7")
      refuses(row[1], row[3], row[4])
    end
    accepts('{"uniqueItems":false}', "[1,1]")
    accepts('{"minProperties":1,"maxProperties":2}', '{"a":1}')
    unusable('{"minLength":-1}', "not negative")
    unusable('{"minLength":1.5}', "whole number")
    unusable('{"uniqueItems":1}', "true or false")
  end)

  it("has elements", function()
    accepts('{"items":{"type":"integer"}}', "[]", "[1,2]", "{}")
    refuses('{"items":{"type":"integer"}}', '[1,"a"]', "'[2]' must be of type integer")
    local tuple = '{"prefixItems":[{"type":"string"},true],"items":{"type":"null"}}'
    accepts(tuple, "[]", '["a"]', '["a",1]', '["a",1,null]', "3")
    refuses(tuple, "[1]", "'[1]'")
    refuses(tuple, '["a",1,1]', "'[3]'")
    unusable('{"items":[{}]}', "'prefixItems'")
    unusable('{"prefixItems":[]}', "must not be empty")
  end)

  it("has properties", function()
    local text = [[{"properties":{"a":{"type":"string"},"b c":{"properties":{"d":{"const":1}}}},
      "required":["a"],"additionalProperties":false}]]
    accepts(text, '{"a":""}', '{"a":"x","b c":{"d":1,"e":2}}', "[]", "null")
    refuses(text, "{}", "lacks the property 'a'")
    refuses(text, '{"a":1}', "'a' must be of type string")
    refuses(text, '{"a":"","b c":{"d":2}}', "'['b c'].d' is not the value")
    refuses(text, '{"a":"","secret":1}', "a property that the schema does not name")
    accepts('{"additionalProperties":{"type":"null"}}', '{"x":null}')
    refuses('{"additionalProperties":{"type":"null"}}', '{"x":1}', "must be of type null")
    accepts('{"propertyNames":{"maxLength":1}}', '{"x":1}', "3")
    refuses('{"propertyNames":{"maxLength":1}}', '{"secret":1}', "whose name does not fit")
    unusable('{"properties":[]}', "must be an object")
    unusable('{"properties":{"a":1}}', "'properties.a': it must be an object")
    unusable('{"required":[1]}', "must be a text")
  end)

  it("does not repeat what a model said", function()
    local _, message = check('{"additionalProperties":false}', '{"hunter2":"hunter3"}')
    assert.is_nil(message:find("hunter", 1, true))
    _, message = check('{"properties":{"a":{"enum":[1]}}}', '{"a":"hunter2"}')
    assert.is_nil(message:find("hunter", 1, true))
  end)

  it("combines", function()
    accepts('{"allOf":[{"minimum":1},{"maximum":3}]}', "2")
    refuses('{"allOf":[{"minimum":1},{"maximum":3}]}', "4", "more than 3")
    accepts('{"anyOf":[{"minimum":5},{"type":"null"}]}', "6", "null")
    refuses('{"anyOf":[{"minimum":5},{"type":"null"}]}', "4", "none of the 2")
    accepts('{"oneOf":[{"minimum":5},{"maximum":7}]}', "4", "8")
    refuses('{"oneOf":[{"minimum":5},{"maximum":7}]}', "6", "fits 2 of the 2")
    accepts('{"not":{"type":"null"}}', "1")
    refuses('{"not":{"type":"null"}}', "null", "'not'")
    local text = '{"if":{"type":"string"},"then":{"minLength":2},"else":{"type":"null"}}'
    accepts(text, '"ab"', "null")
    refuses(text, '"a"', "fewer than 2")
    refuses(text, "1", "must be of type null")
    accepts('{"if":{"type":"string"}}', "1", '"a"')
    unusable('{"then":true}', "no 'if' beside it")
    unusable('{"else":true}', "no 'if' beside it")
    unusable('{"anyOf":[]}', "must not be empty")
  end)

  it("refers to its definitions, and to itself", function()
    local tree = [[{"$ref":"#/$defs/tree","$defs":{"tree":{"properties":{
      "kids":{"items":{"$ref":"#/$defs/tree"}},
      "n":{"type":"integer"}},"additionalProperties":false}}}]]
    accepts(tree, '{"n":1,"kids":[{"kids":[]},{"n":2}]}')
    refuses(tree, '{"kids":[{"kids":[{"n":"x"}]}]}', "'kids[1].kids[1].n'")
    accepts('{"properties":{"next":{"$ref":"#"}},"additionalProperties":false}', '{"next":{"next":{}}}')
    accepts('{"$ref":"#/definitions/a~1b~0c","definitions":{"a/b~c":true}}', "1")
    for _, ref in ipairs { '"#/$defs/b"', '"#/x/y"', '"other.json"', '"#/definitions/a"', "1",
      '"#/$defs/a/b"' } do
      unusable(('{"$ref":%s,"$defs":{"a":true}}'):format(ref), "'#/$defs/NAME'")
    end
    unusable('{"$ref":"#"}', "refers to itself")
    unusable('{"$defs":{"a":{"allOf":[{"$ref":"#/$defs/b"}]},"b":{"not":{"$ref":"#/$defs/a"}}}}',
      "refers to itself")
    unusable('{"$defs":{"a":{"pattern":"x"}}}', "'pattern'")
    unusable('{"$defs":[]}', "must be an object")
    unusable('{"$defs":1,"$ref":"#/$defs/a"}', "must be an object")
    unusable('{"items":{"$ref":"#/$defs/a"}}', "'#/$defs/NAME'")
  end)

  it("may have notes, and a draft that is known", function()
    accepts([[{"$schema":"https://json-schema.org/draft/2020-12/schema","title":"t","description":"d",
      "default":1,
      "examples":[],"deprecated":true,"readOnly":true,"writeOnly":true,"$comment":"c"}]], "1")
    accepts('{"$schema":"http://json-schema.org/draft-07/schema#"}', "1")
    unusable('{"$schema":"http://json-schema.org/draft-03/schema#"}', "not a draft")
    unusable('{"$schema":1}', "not a draft")
  end)

  it("is refused by the name of what it cannot promise", function()
    for _, word in ipairs { "pattern", "patternProperties", "format", "$id", "$anchor", "$dynamicRef",
      "contains",
      "minContains", "dependentRequired", "dependentSchemas", "unevaluatedProperties", "unevaluatedItems",
      "contentEncoding", "nullable", "additionalItems" } do
      unusable(('{"properties":{"x":{"%s":1}}}'):format(word),
        ("the keyword '%s' is not supported"):format(word))
    end
    unusable('{"maxlength":1}', "did you mean 'maxLength'?")
    unusable('{"a\\u0001b":1}', "'a?b'")
    unusable("1", "it must be an object")
    unusable("[]", "it must be an object")
  end)

  it("has a size", function()
    local function deep(n)
      return ('{"not":'):rep(n - 1) .. "{}" .. ("}"):rep(n - 1)
    end
    assert.is_table((compile(deep(32))))
    unusable(deep(33), "deeper than 32")
    local function wide(n)
      local parts = {}
      for i = 1, n do parts[i] = ('"p%d":{}'):format(i) end
      return '{"properties":{' .. table.concat(parts, ",") .. "}}"
    end
    assert.is_table((compile(wide(1999))))
    unusable(wide(2000), "more than 2000 schemas")
    local defs = wide(2000):gsub("properties", "$defs")
    unusable(defs, "more than 2000 schemas")
    local function words(n)
      return '{"enum":[' .. ("1,"):rep(n - 1) .. "1]}"
    end
    assert.is_table((compile(words(1000))))
    unusable(words(1001), "more than 1000 elements")
  end)

  it("takes a time that is its size times that of the value", function()
    -- 2^40 ways through the schema, for a single value
    local parts = {}
    for i = 1, 40 do
      parts[i] = ('"a%d":{"anyOf":[{"$ref":"#/$defs/a%d"},{"$ref":"#/$defs/a%d"}]}'):format(i, i + 1, i + 1)
    end
    parts[41] = '"a41":{"type":"null"}'
    local text = '{"$ref":"#/$defs/a1","$defs":{' .. table.concat(parts, ",") .. "}}"
    refuses(text, "1", "none of the 2")
    -- and 2^60 ways through both
    local both = [[{"anyOf":[{"properties":{"x":{"$ref":"#"}},"required":["y"]},
      {"properties":{"x":{"$ref":"#"}},"required":["z"]}]}]]
    refuses(both, ('{"x":'):rep(60) .. "1" .. ("}"):rep(60), "none of the 2")
  end)

  it("stops where schema and value are too large together", function()
    local names, elements = {}, {}
    for i = 1, 900 do names[i] = ('{"const":%d}'):format(i) end
    for i = 1, 1500 do elements[i] = "0" end
    local node = assert(compile('{"items":{"anyOf":[' .. table.concat(names, ",") .. ',{}]}}'))
    local value = json.decode("[" .. table.concat(elements, ",") .. "]")
    local ok, message, code = jsonschema.validate(node, value)
    assert.is_nil(ok)
    assert.equal("LIMIT_EXCEEDED", code)
    assert(message:find("too large together", 1, true))
    ran.limit = true
  end)

  it("was run in each of its lines here", function()
    local missing = {}
    for line in pairs(lines) do
      if not ran[line] then missing[#missing + 1] = line end
    end
    table.sort(missing)
    -- the limit is reached without the hook, which makes everything a hundred times slower
    local file <close> = assert(io.open((os.getenv("BRIDLE_SOURCE") or ".") .. "/lua/bridle/jsonschema.lua"))
    local n, left = 0, {}
    local at = {}
    for line in file:lines() do
      n = n + 1
      at[n] = line
    end
    for _, line in ipairs(missing) do
      if not at[line]:find("too large together", 1, true) and not at[line]:match("^%s*end[,)]*$") then
        left[#left + 1] = line .. ": " .. at[line]
      end
    end
    assert.same({}, left)
    assert.is_true(next(lines) ~= nil and ran.limit)
  end)
end)
