--- Providers and their keys, as `bridle.lua` describes them:
---
---     keys = {
---       work = { env = "OPENAI_API_KEY" },
---       lab = { file = "/etc/bridle/lab.key" },
---       vault = { command = { "/usr/bin/pass", "show", "anthropic" } },
---     },
---     providers = {
---       lab = { base_url = "https://llm.example.com/v1", key = "lab", ca_file = "/etc/ssl/lab.pem",
---               proxy = "http://127.0.0.1:3128", dialects = { "chat", "responses" } },
---       claude = { base_url = "https://api.anthropic.com/v1", key = "vault", api = "anthropic" },
---     },
---
--- No value of a key is ever here, only where it is.

local json = require "json"
local schema = require "bridle.schema"

local provider = {}

local PROVIDER = { base_url = "required", key = "optional", key_env = "optional", models = "optional",
  streaming = "optional", timeout = "optional", connect_timeout = "optional",
  first_byte_timeout = "optional", idle_timeout = "optional", total_timeout = "optional",
  ca_file = "optional", proxy = "optional", dialects = "optional", api = "optional",
  answers = "optional", auth = "optional" }
local KEY = { env = "optional", file = "optional", command = "optional", timeout = "optional" }
local KINDS = { "env", "file", "command" }
local MAX = { keys = 32, models = 128, url = 1024, timeout = 3600, total = 86400, words = 16,
  word = 255, path = 1024, unlock = 600 }

--- What a provider speaks that says no more than its `api`. The order is that of enum br_route.
local DIALECTS = { "chat", "responses", "messages" }
local APIS = {
  openai = { dialects = { "chat", "responses" }, auth = "bearer" },
  anthropic = { dialects = { "messages" }, auth = "x-api-key" },
}

local function is_loopback(name)
  return name == "localhost" or name == "[::1]" or name:find("^127%.%d+%.%d+%.%d+$") ~= nil
end

--- Host, whether it is plaintext, and what is behind the authority; or nil and why not.
local function split(url)
  local scheme, rest = url:match("^(%l+)://(.+)$")
  if scheme ~= "https" and scheme ~= "http" then return nil, "it must start with 'https://'" end
  local authority, path = rest:match("^([^/]*)(.*)$")
  if authority:find("@", 1, true) then
    return nil, "it must not hold a user or password; give it a key of its own, in 'keys'"
  end
  if path:find("[?#]") or authority:find("[?#]") then return nil, "it must not have '?' or '#'" end
  if url:find("[^%w%-._~:/%[%]%%]") then return nil, "it holds a character that URLs do not have" end
  local name, port = authority:match("^(%[[%x:]+%])(.*)$")
  if not name then name, port = authority:match("^([%w%-.]+)(.*)$") end
  if not name then return nil, "it has no host" end
  if port ~= "" then
    local number = math.tointeger(tonumber(port:match("^:(%d+)$")))
    if not number or number < 1 or number > 65535 then
      return nil, "its port is not a number from 1 to 65535"
    end
  end
  return { host = name, plain = scheme == "http", path = path }
end

--- Why a base URL is refused, or nil.
---@param url string
---@return string?
function provider.url_problem(url)
  local parts, problem = split(url)
  if not parts then return problem end
  if parts.plain and not is_loopback(parts.host) then
    return "plaintext is for loopback only; use 'https://'"
  end
end

local function checked_url(value, at, field)
  local path = schema.join(at, field)
  local url = schema.text(value[field], path, MAX.url)
  local problem = provider.url_problem(url)
  if problem then schema.fail(path, ("'%s' is refused: %s"):format(path, problem)) end
  return (url:gsub("/+$", ""))
end

local function checked_proxy(value, at, base_url)
  if value == nil then return "" end
  local url = schema.text(value, at, MAX.url)
  local parts, problem = split(url)
  if parts and parts.path ~= "" and parts.path ~= "/" then problem = "a proxy has no path" end
  if base_url:find("^http:") then problem = "what is spoken to in plaintext has no proxy" end
  if problem then schema.fail(at, ("'%s' is refused: %s"):format(at, problem)) end
  return (url:gsub("/$", ""))
end

--- An absolute path without '..'; "" for nil.
local function absolute(value, at)
  if value == nil then return "" end
  local path = schema.text(value, at, MAX.path)
  if not path:find("^/") or ("/" .. path .. "/"):find("/../", 1, true) then
    schema.expected(at, "an absolute path", value)
  end
  return path
end

local function variable(value, at)
  if type(value) ~= "string" or #value > 128 or not value:find("^[%a_][%w_]*$") then
    schema.expected(at, "the name of an environment variable", value)
  end
  return value
end

local function command(value, at)
  local words = json.array({})
  for i, word in ipairs(schema.list(value, at, 1, MAX.words)) do
    local path = schema.join(at, i)
    words[i] = i == 1 and absolute(word, path) or schema.text(word, path, MAX.word)
  end
  return words
end

--- Where one key is.
local function where(key, at)
  local kinds = {}
  for _, kind in ipairs(KINDS) do
    if key[kind] ~= nil then kinds[#kinds + 1] = kind end
  end
  if #kinds ~= 1 then
    schema.fail(at, ("'%s' needs one of 'env', 'file' and 'command'"):format(at))
  end
  local kind = kinds[1]
  local path = schema.join(at, kind)
  local out = { from = kind, at = "", words = json.array({}), timeout = 0 }
  if kind == "command" then
    local seconds = key.timeout == nil and 60 or key.timeout
    out.words = command(key.command, path)
    out.timeout = schema.integer(seconds, schema.join(at, "timeout"), 1, MAX.unlock)
    return out
  end
  if key.timeout ~= nil then
    schema.fail(schema.join(at, "timeout"), ("'%s.timeout' is for a command"):format(at))
  end
  out.at = kind == "env" and variable(key.env, path) or absolute(key.file, path)
  return out
end

--- Check `keys`: a map from name to where that key is.
---@param value any
---@return table<string, table>
function provider.keys(value)
  local out = {}
  for i, name in ipairs(schema.keys(schema.map(value or {}, "keys"))) do
    local at = schema.join("keys", name)
    if i > MAX.keys then schema.fail(at, ("more than %d keys"):format(MAX.keys)) end
    if not name:find("^[a-z0-9][a-z0-9_-]*$") or #name > 64 then
      schema.fail(at, ("the key '%s' must be named with lower-case letters, digits, '-' and '_'")
        :format(name))
    end
    out[name] = where(schema.object(value[name], at, KEY), at)
    out[name].name = name
  end
  return out
end

local function chosen_key(value, at, keys)
  if value.key ~= nil and value.key_env ~= nil then
    schema.fail(at, ("'%s' has both 'key' and 'key_env'"):format(at))
  end
  if value.key_env ~= nil then
    local name = variable(value.key_env, schema.join(at, "key_env"))
    return { from = "env", name = name, at = name, words = json.array({}), timeout = 0 }
  end
  if value.key == nil then
    return { from = "none", name = "", at = "", words = json.array({}), timeout = 0 }
  end
  local path = schema.join(at, "key")
  local name = schema.text(value.key, path, 64)
  if not keys[name] then
    local names = schema.keys(keys)
    if #names == 0 then
      schema.fail(path, ("'%s' is '%s', and there are no 'keys'"):format(path, name))
    end
    schema.word(name, path, names)
  end
  return keys[name]
end

local function dialects(value, at, api)
  if value == nil then value = api.dialects end
  local out, seen = json.array({}), {}
  for i, word in ipairs(schema.list(value, at, 1, #DIALECTS)) do
    local path = schema.join(at, i)
    out[i] = schema.word(word, path, DIALECTS)
    if seen[word] then schema.fail(path, ("'%s' names '%s' twice"):format(at, word)) end
    seen[word] = true
  end
  return out
end

--- `timeout` is for the answer to begin and to go on; what is longer or shorter has its own key.
local function timeouts(value, at)
  local function seconds(key, default, max)
    local is = value[key]
    if is == nil then return default end
    return schema.integer(is, schema.join(at, key), 1, max)
  end
  local usual = seconds("timeout", 120, MAX.timeout)
  return {
    connect = seconds("connect_timeout", math.min(usual, 10), MAX.timeout),
    first_byte = seconds("first_byte_timeout", usual, MAX.timeout),
    idle = seconds("idle_timeout", usual, MAX.timeout),
    total = seconds("total_timeout", 5 * usual, MAX.total),
  }
end

--- Check one provider and give its normal form.
---@param value any
---@param at string
---@param keys table<string, table> of provider.keys()
---@return table
function provider.normalise(value, at, keys)
  schema.object(value, at, PROVIDER)
  local base_url = checked_url(value, at, "base_url")
  local streaming = value.streaming
  if streaming == nil then streaming = true end
  if type(streaming) ~= "boolean" then
    schema.expected(schema.join(at, "streaming"), "true or false", streaming)
  end
  local models = json.array({})
  for i, model in ipairs(schema.list(value.models or {}, schema.join(at, "models"), 0, MAX.models)) do
    models[i] = schema.text(model, schema.join(schema.join(at, "models"), i), 200)
  end
  local api = APIS[schema.word(value.api or "openai", schema.join(at, "api"), { "openai", "anthropic" })]
  return {
    base_url = base_url,
    key = chosen_key(value, at, keys),
    ca_file = absolute(value.ca_file, schema.join(at, "ca_file")),
    proxy = checked_proxy(value.proxy, schema.join(at, "proxy"), base_url),
    auth = schema.word(value.auth or api.auth, schema.join(at, "auth"), { "bearer", "x-api-key" }),
    dialects = dialects(value.dialects, schema.join(at, "dialects"), api),
    answers = schema.word(value.answers or "strict", schema.join(at, "answers"), { "strict", "normalize" }),
    timeouts = timeouts(value, at),
    streaming = streaming,
    models = models,
  }
end

return provider
