package.path = (os.getenv("BRIDLE_SOURCE") or ".") .. "/spec/support/?.lua;" .. package.path
local json = require("sandbox").json
local jsonschema = dofile((os.getenv("BRIDLE_SOURCE") or ".") .. "/lua/bridle/jsonschema.lua")

-- docs/protocol.schema.json and docs/events.schema.json, which tests make from the tables of the
-- code, against the examples of docs/protocol.md, which a test plays.

local function read(name)
  local f <close> = assert(io.open((os.getenv("BRIDLE_SOURCE") or ".") .. "/docs/" .. name))
  return f:read "a"
end

--- The schema of one side of the protocol: "client" or "server".
local function side(name)
  local schema = json.decode(read "protocol.schema.json")
  schema.anyOf = json.decode('[{"$ref": "#/$defs/' .. name .. '"}]')
  return assert(jsonschema.compile(schema))
end

--- The lines of the page's examples that begin with this character.
local function examples(mark)
  local lines, inside = {}, false
  for line in read("protocol.md"):gmatch "[^\n]+" do
    if line == "```" then
      inside = not inside
    elseif inside and line:sub(1, 1) == mark then
      lines[#lines + 1] = line:sub(3)
    end
  end
  assert(#lines > 8)
  return lines
end

describe("the schemas of the protocol", function()
  for mark, name in pairs { [">"] = "client", ["<"] = "server" } do
    it("accept what the examples say: the " .. name, function()
      local schema = side(name)
      for _, line in ipairs(examples(mark)) do
        local ok, message = jsonschema.validate(schema, json.decode(line))
        assert(ok, line .. ": " .. tostring(message))
      end
    end)

    it("refuse the same with a key more, one less, or from the other side: the " .. name, function()
      local schema, other = side(name), side(name == "client" and "server" or "client")
      for _, line in ipairs(examples(mark)) do
        local value = json.decode(line)
        value.x = 1
        assert.is_nil((jsonschema.validate(schema, value)))
        value = json.decode(line)
        value.jsonrpc = nil
        assert.is_nil((jsonschema.validate(schema, value)))
        assert.is_nil((jsonschema.validate(other, json.decode(line))))
      end
    end)
  end

  it("refuse a parameter that is not known, or of another type", function()
    local schema = side "client"
    for _, line in ipairs(examples ">") do
      local value = json.decode(line)
      value.params.x = 1
      assert.is_nil((jsonschema.validate(schema, value)))
      value = json.decode(line)
      if value.params.sessionId then
        value.params.sessionId = 1
        assert.is_nil((jsonschema.validate(schema, value)))
      end
    end
  end)
end)

describe("the schema of events", function()
  it("accepts the events of the examples, and nothing beside them", function()
    local schema = assert(jsonschema.compile(json.decode(read "events.schema.json")))
    local n = 0
    for _, line in ipairs(examples "<") do
      local params = json.decode(line).params
      if params and params.event then
        n = n + 1
        local ok, message = jsonschema.validate(schema, params.event)
        assert(ok, line .. ": " .. tostring(message))
        params.event.data.x = 1
        assert.is_nil((jsonschema.validate(schema, params.event)))
        params.event.data.x = nil
        params.event.type = "unknown"
        assert.is_nil((jsonschema.validate(schema, params.event)))
      end
    end
    assert.equal(3, n)
  end)
end)
