--- Adapters: programs that drive a model of their own inside of a sandbox (docs/adapters.md). An
--- `adapter.lua` is data that says what one is; the table `adapters` of `bridle.lua` says with which
--- profiles the operator lets it run, and how much of a provider it may use. Neither is ever read from a
--- workspace.

local json = require "json"
local schema = require "bridle.schema"

local adapters = {}

local ADAPTER = { id = "required", revision = "required", entry = "required", profiles = "required",
  routes = "required", session = "optional", gate = "optional", artifact = "required",
  ceilings = "required", system = "optional" }
local PROFILE = { tools = "required" }
local ARTIFACT = { kind = "required", bytes = "optional" }
local CEILINGS = { outputBytes = "required", traceBytes = "required" }
local ROUTES = { "chat", "responses", "messages", "models" }
local TERMS = { profiles = "required", image = "optional", file = "optional", gate = "optional",
  context_files = "optional", lease = "optional", keep = "optional" }
local LEASE = { requests = "optional", tokens = "optional", request_bytes = "optional",
  response_bytes = "optional", answer_tokens = "optional", in_flight = "optional",
  seconds = "optional" }
--- As core/frame and core/wire have them.
local MAX = { adapters = 32, profiles = 8, entry = 8, word = 255, tools = 32, tool = 63, image = 255,
  revision = 1000000, output = 1 << 20, trace = 64 << 10, artifact = 512 << 10, system = 4095,
  requests = 100000, tokens = 1000000000, bytes = 1 << 40, answer = 1000000, in_flight = 256,
  seconds = 86400, path = 4095 }
local SECONDS = { s = 1, m = 60, h = 3600, d = 86400 }

local function is_name(value, most)
  return type(value) == "string" and #value > 0 and #value <= most and not value:find("[^%w._-]")
end

local function flag(value, at)
  if value ~= nil and type(value) ~= "boolean" then schema.expected(at, "true or false", value) end
  return value == true
end

--- "pi-coding@1": the id and the revision.
---@param ref string
---@return string?, integer?
function adapters.split(ref)
  local id, digits = ref:match("^([a-z0-9-]+)@([1-9]%d*)$")
  local revision = digits and math.tointeger(tonumber(digits))
  if not id or not schema.is_kebab(id) or #id > 63 or not revision or revision > MAX.revision then
    return nil
  end
  return id, revision
end

-- ---- adapter.lua -----------------------------------------------------------------------------

local function entry(list)
  local out = json.array({})
  for i, word in ipairs(schema.list(list, "entry", 1, MAX.entry)) do
    out[i] = schema.text(word, schema.join("entry", i), MAX.word)
  end
  if not out[1]:find("^/") or out[1]:find("/%.%.?/") then
    schema.expected("entry[1]", "an absolute path inside of the image", out[1])
  end
  return out
end

local function tools(list, at)
  local out, seen = json.array({}), {}
  for i, name in ipairs(schema.list(list, at, 0, MAX.tools)) do
    local here = schema.join(at, i)
    if not is_name(name, MAX.tool) then
      schema.expected(here, "a name of letters, digits, '.', '_' and '-'", name)
    end
    if seen[name] then schema.fail(here, ("'%s': '%s' is there twice"):format(at, name)) end
    seen[name] = true
    out[i] = name
  end
  return out
end

local function words(list, at, known)
  local out = json.array({})
  for i, word in ipairs(schema.list(list, at, 1, #known)) do
    out[i] = schema.word(word, schema.join(at, i), known)
  end
  return out
end

local function artifact(value)
  schema.object(value, "artifact", ARTIFACT)
  local kind = schema.word(value.kind, "artifact.kind", { "none", "text", "json" })
  if kind == "none" then
    if value.bytes ~= nil then schema.fail("artifact.bytes", "'artifact.bytes': there is no artifact") end
    return { kind = kind, bytes = 0 }
  end
  return { kind = kind, bytes = schema.integer(value.bytes, "artifact.bytes", 1, MAX.artifact) }
end

--- Check what an adapter.lua returned, and take from it what concerns one profile.
---@param value any
---@param profile string
---@return table
function adapters.normalise(value, profile)
  schema.object(value, "", ADAPTER)
  if type(value.id) ~= "string" or not schema.is_kebab(value.id) or #value.id > 63 then
    schema.expected("id", "lower-case words and digits joined by '-', at most 63 bytes", value.id)
  end
  schema.map(value.profiles, "profiles")
  local of
  for i, name in ipairs(schema.keys(value.profiles)) do
    local at = schema.join("profiles", name)
    if i > MAX.profiles then schema.fail(at, ("more than %d profiles"):format(MAX.profiles)) end
    schema.object(value.profiles[name], at, PROFILE)
    local list = tools(value.profiles[name].tools, schema.join(at, "tools"))
    if name == profile then of = list end
  end
  local ceilings = schema.object(value.ceilings, "ceilings", CEILINGS)
  local out = {
    id = value.id,
    revision = schema.integer(value.revision, "revision", 1, MAX.revision),
    entry = entry(value.entry),
    routes = words(value.routes, "routes", ROUTES),
    session = flag(value.session, "session"),
    gate = flag(value.gate, "gate"),
    artifact = artifact(value.artifact),
    output = schema.integer(ceilings.outputBytes, "ceilings.outputBytes", 1, MAX.output),
    trace = schema.integer(ceilings.traceBytes, "ceilings.traceBytes", 1, MAX.trace),
    system = value.system and schema.text(value.system, "system", MAX.system, true) or "",
  }
  if not of then
    schema.fail("profiles", ("the adapter '%s' is not made for the profile '%s'"):format(value.id, profile))
  end
  out.tools = of
  return out
end

--- The same of the one that was asked for, with a refusal raised as a text.
---@param value any
---@param ref string
---@param profile string
---@return table
function adapters.load(value, ref, profile)
  if type(value) ~= "table" then
    error("an adapter.lua must end with 'return { id = ..., revision = 1, entry = ..., ... }'", 0)
  end
  local normal, failure = schema.catch(adapters.normalise, value, profile)
  if not normal then error(failure.message, 0) end
  local is = ("%s@%d"):format(normal.id, normal.revision)
  if is ~= ref then error(("it is the adapter '%s', and '%s' was asked for"):format(is, ref), 0) end
  return normal
end

-- ---- bridle.lua ------------------------------------------------------------------------------

local function seconds(value, at)
  if value == nil then return 30 * 86400 end
  local number, unit
  if type(value) == "string" then number, unit = value:match("^([1-9]%d?%d?%d?)([smhd])$") end
  local total = number and math.tointeger(tonumber(number)) * SECONDS[unit]
  if not total or total > 3650 * 86400 then
    schema.expected(at, "a time such as '12h' or '30d'", value)
  end
  return total
end

local function lease(value, at)
  schema.object(value, at, LEASE)
  local function number(key, default, most)
    local given = value[key]
    if given == nil then return default end
    return schema.integer(given, schema.join(at, key), 1, most)
  end
  return {
    requests = number("requests", 64, MAX.requests),
    tokens = number("tokens", 2000000, MAX.tokens),
    request_bytes = number("request_bytes", 64 << 20, MAX.bytes),
    response_bytes = number("response_bytes", 64 << 20, MAX.bytes),
    answer_tokens = number("answer_tokens", 16384, MAX.answer),
    in_flight = number("in_flight", 8, MAX.in_flight),
    seconds = number("seconds", 0, MAX.seconds),
  }
end

local function terms(ref, value, at)
  if not adapters.split(ref) then
    schema.fail(at, ("'%s' is not the name of an adapter, such as 'pi-coding@1'"):format(at))
  end
  schema.object(value, at, TERMS)
  local allowed, here = json.array({}), schema.join(at, "profiles")
  for i, name in ipairs(schema.list(value.profiles, here, 1, MAX.profiles)) do
    if type(name) ~= "string" or not schema.is_kebab(name) or #name > 63 then
      schema.expected(schema.join(here, i), "the name of a profile", name)
    end
    allowed[i] = name
  end
  local image = value.image and schema.text(value.image, schema.join(at, "image"), MAX.image) or ""
  if image:find("[^%w._:-]") then
    schema.expected(schema.join(at, "image"), "the name or the id of an image", image)
  end
  local file = value.file and schema.text(value.file, schema.join(at, "file"), MAX.path) or ""
  if file ~= "" and not file:find("^/") then
    schema.expected(schema.join(at, "file"), "an absolute path", file)
  end
  local gate = schema.word(value.gate or "off", schema.join(at, "gate"), { "ask", "off" })
  return {
    ref = ref, profiles = allowed, image = image, file = file, gate = gate == "ask",
    context_files = flag(value.context_files, schema.join(at, "context_files")),
    lease = lease(value.lease or {}, schema.join(at, "lease")),
    keep = seconds(value.keep, schema.join(at, "keep")),
  }
end

--- The table `adapters` of bridle.lua: a list, by name.
---@param value any
---@return table
function adapters.terms(value)
  local out = json.array({})
  if value == nil then return out end
  schema.map(value, "adapters")
  for i, ref in ipairs(schema.keys(value)) do
    local at = schema.join("adapters", ref)
    if i > MAX.adapters then schema.fail(at, ("more than %d adapters"):format(MAX.adapters)) end
    out[i] = terms(ref, value[ref], at)
  end
  return out
end

return adapters
