--- What `service` of the operator's `bridle.lua` says (docs/service.md):
---
---     service = {
---       listen = { "127.0.0.1:8765", "/run/bridle/service.sock",
---                  { address = "0.0.0.0:8443", tls = true } },
---       root = "/srv/work",
---       users = { "alice", 1000 }, certificates = { ["ops laptop"] = "operate" },
---       tls = { cert = "/etc/bridle/service.pem", key = "/etc/bridle/service.key" },
---       limits = { running = 16 },
---     }
---
--- Everything is optional. What is not said stays away, so that defaults are in one place only
--- (core/wire/service.c). Addresses and files are looked at by those who use them.

local json = require "json"
local schema = require "bridle.schema"

local service = {}

local KEYS = { listen = "optional", root = "optional", origins = "optional", hosts = "optional",
  users = "optional", certificates = "optional", tls = "optional", token_in_url = "optional",
  board = "optional", board_remote = "optional", metrics = "optional", detach = "optional",
  limits = "optional", otlp = "optional", drain = "optional" }
local LISTENER = { address = "required", tls = "optional", plaintext = "optional" }
local TLS = { cert = "required", key = "required", client_ca = "optional",
  require_client_cert = "optional" }
local FLAGS = { "token_in_url", "board", "board_remote", "metrics" }
local ACCESS = { "observe", "answer", "operate" }
local MAX = { listen = 8, origins = 16, users = 16, certificates = 32, name = 255, path = 4095 }

--- The least and the most of each number.
local LIMITS = {
  message_bytes = { 4096, 16 * 1024 * 1024 },
  fragments = { 1, 65536 },
  frame_seconds = { 1, 3600 },
  handshake_seconds = { 1, 600 },
  queue_bytes = { 2 * 1024 * 1024, 256 * 1024 * 1024 }, -- an event may have 1 MiB
  connections = { 1, 65536 },
  connections_per_peer = { 1, 65536 },
  sessions_per_connection = { 1, 1024 },
  unprompted_seconds = { 1, 86400 },
  ask_seconds = { 1, 86400 },
  running = { 1, 64 },
  requests_per_second = { 0, 1000000 },
}

local function flag(value, path)
  if type(value) ~= "boolean" then schema.expected(path, "true or false", value) end
  return value
end

local function absolute(value, path)
  schema.text(value, path, MAX.path)
  if value:sub(1, 1) ~= "/" then schema.expected(path, "an absolute path", value) end
  return value
end

local function listener(value, path)
  if type(value) == "string" then value = { address = value } end
  schema.object(value, path, LISTENER)
  local address = schema.text(value.address, schema.join(path, "address"), MAX.name)
  local tls = flag(value.tls or false, schema.join(path, "tls"))
  local plain = flag(value.plaintext or false, schema.join(path, "plaintext"))
  if tls and plain then
    schema.fail(path, ("'%s': 'tls' and 'plaintext' exclude each other"):format(path))
  end
  if (tls or plain) and address:sub(1, 1) == "/" then
    schema.fail(path, ("'%s': '%s' is for an address with a port, not for a Unix socket"):format(
      path, tls and "tls" or "plaintext"))
  end
  return { address = address, tls = tls, plaintext = plain }
end

local function texts(value, path, most, check)
  local out = json.array({})
  for i, text in ipairs(schema.list(value, path, 0, most)) do
    out[i] = check(text, schema.join(path, i))
  end
  return out
end

--- As a browser sends it: scheme, host and, unless it is the scheme's own, port.
local function origin(value, path)
  schema.text(value, path, MAX.name)
  if not value:find("^https?://[%w.%[%]:-]+$") then
    schema.expected(path, "an origin such as 'https://board.example:8443'", value)
  end
  return value:lower()
end

local function host(value, path)
  schema.text(value, path, MAX.name)
  if not value:find("^[%w.%[%]:-]+$") then
    schema.expected(path, "a host, with a port if it is not the scheme's own", value)
  end
  return value:lower()
end

--- Names and numbers apart: who has which number is the system's matter.
local function users(value, out)
  for i, user in ipairs(schema.list(value, "service.users", 0, MAX.users)) do
    local path = schema.join("service.users", i)
    if math.type(user) == "integer" then
      out.uids[#out.uids + 1] = schema.integer(user, path, 0, 4294967294)
    else
      out.users[#out.users + 1] = schema.text(user, path, 63)
    end
  end
end

local function certificates(value)
  local out = json.array({})
  schema.map(value, "service.certificates")
  for i, name in ipairs(schema.keys(value)) do
    local path = schema.join("service.certificates", name)
    if i > MAX.certificates then
      schema.fail(path, ("more than %d certificates"):format(MAX.certificates))
    end
    if name == "" or #name > 63 or name:find("[^\x20-\x7e]") then
      schema.fail(path, ("'%s': a name has 1 to 63 characters of ASCII"):format(path))
    end
    out[i] = { name = name, access = schema.word(value[name], path, ACCESS) }
  end
  return out
end

local function tls(value)
  schema.object(value, "service.tls", TLS)
  local out = { cert = absolute(value.cert, "service.tls.cert"),
    key = absolute(value.key, "service.tls.key"), client_ca = "",
    require = flag(value.require_client_cert or false, "service.tls.require_client_cert") }
  if value.client_ca ~= nil then out.client_ca = absolute(value.client_ca, "service.tls.client_ca") end
  if out.require and out.client_ca == "" then
    schema.fail("service.tls", "'service.tls': 'require_client_cert' needs 'client_ca'")
  end
  return out
end

local function limits(value)
  local out, fields = {}, {}
  for name in pairs(LIMITS) do fields[name] = "optional" end
  schema.object(value, "service.limits", fields)
  for name, number in pairs(value) do
    local range = LIMITS[name]
    out[name] = schema.integer(number, schema.join("service.limits", name), range[1], range[2])
  end
  if out.message_bytes and (out.queue_bytes or 4 * 1024 * 1024) < out.message_bytes then
    schema.fail("service.limits",
      "'service.limits': 'queue_bytes' is less than one message of 'message_bytes'")
  end
  return out
end

--- Check it and give its normal form; refusals are raised as schema failures.
---@param value any
---@return table
function service.normalise(value)
  schema.object(value, "service", KEYS)
  local out = { listen = json.array({}), root = "", origins = json.array({}), hosts = json.array({}),
    uids = json.array({}), users = json.array({}), certificates = json.array({}), otlp = "" }
  if value.listen ~= nil then
    for i, l in ipairs(schema.list(value.listen, "service.listen", 1, MAX.listen)) do
      out.listen[i] = listener(l, schema.join("service.listen", i))
    end
  end
  if value.root ~= nil then out.root = absolute(value.root, "service.root") end
  out.origins = texts(value.origins or {}, "service.origins", MAX.origins, origin)
  out.hosts = texts(value.hosts or {}, "service.hosts", MAX.origins, host)
  users(value.users or {}, out)
  out.certificates = certificates(value.certificates or {})
  if value.tls ~= nil then out.tls = tls(value.tls) end
  for _, l in ipairs(out.listen) do
    if l.tls and not out.tls then
      schema.fail("service.listen", ("'service.listen': '%s' has 'tls', and 'service.tls' does not say "
        .. "where certificate and key are"):format(l.address))
    end
  end
  for _, name in ipairs(FLAGS) do
    if value[name] ~= nil then out[name] = flag(value[name], "service." .. name) end
  end
  out.detach = schema.word(value.detach or "deny", "service.detach", { "deny", "allow" }) == "allow"
  out.limits = limits(value.limits or {})
  if value.otlp ~= nil then
    out.otlp = schema.text(value.otlp, "service.otlp", 1024)
    if not out.otlp:find("^https?://[%w.%[%]:-]+") then
      schema.expected("service.otlp", "an address such as 'http://127.0.0.1:4318'", out.otlp)
    end
  end
  if value.drain ~= nil then out.drain = schema.integer(value.drain, "service.drain", 0, 86400) end
  return out
end

--- The same, with a refusal raised as a text.
---@param value any
---@return table
function service.load(value)
  local normal, failure = schema.catch(service.normalise, value)
  if not normal then error(failure.message, 0) end
  return normal
end

return service
