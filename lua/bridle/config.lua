--- The operator's configuration, `bridle.lua`:
---
---     return {
---       api = 1,
---       default_model = "openai/gpt-4.1",
---       keys = { work = { file = "/etc/bridle/openai.key" } },
---       providers = {
---         openai = { base_url = "https://api.openai.com/v1", key = "work",
---                    models = { "gpt-4.1" }, streaming = true, timeout = 120 },
---       },
---       profiles = { ["workspace-v1"] = { image = "sha256:..." } },
---     }

local json = require "json"
local adapters = require "bridle.adapters"
local provider = require "bridle.provider"
local service = require "bridle.service"
local schema = require "bridle.schema"

local config = {}

local KEYS = { api = "required", default_model = "optional", providers = "optional",
  profiles = "optional", keys = "optional", adapters = "optional", service = "optional" }
local PROFILE = { image = "required" }
local MAX = { profiles = 16, image = 255, providers = 16 }

local function default_model(value, providers)
  if value == nil then return "" end
  local model = schema.text(value, "default_model", 256)
  local name, rest = model:match("^([^/]+)/(.+)$")
  if not name then schema.expected("default_model", "'provider/model'", value) end
  for _, p in ipairs(providers) do
    if p.name == name then
      if #p.models == 0 then return model end
      for _, m in ipairs(p.models) do
        if m == rest then return model end
      end
      schema.fail("default_model", ("'default_model': the provider '%s' has no model '%s' in its 'models'")
        :format(name, rest))
    end
  end
  schema.fail("default_model", ("'default_model': there is no provider '%s'"):format(name))
end

--- The images that profiles get which require one: a list of profile and image.
local function profiles(value)
  local out = json.array({})
  schema.map(value, "profiles")
  for i, name in ipairs(schema.keys(value)) do
    local at = schema.join("profiles", name)
    if i > MAX.profiles then schema.fail(at, ("more than %d profiles"):format(MAX.profiles)) end
    if not schema.is_kebab(name) or #name > 63 then
      schema.fail(at, ("'%s' is not the name of a profile"):format(at))
    end
    schema.object(value[name], at, PROFILE)
    local image = schema.text(value[name].image, schema.join(at, "image"), MAX.image)
    if image:find("[^%w._:-]") then
      schema.expected(schema.join(at, "image"), "the name or the id of an image", image)
    end
    out[i] = { profile = name, image = image }
  end
  return out
end

--- Check what a configuration file returned and give its normal form.
---@param value any
---@return table
function config.normalise(value)
  schema.object(value, "", KEYS)
  if value.api ~= 1 then schema.expected("api", "1", value.api) end
  local terms = adapters.terms(value.adapters)
  local served = value.service ~= nil and service.normalise(value.service) or nil
  if value.providers == nil and value.profiles == nil and value.adapters == nil and not served then
    schema.fail("", "the document lacks the key 'providers'")
  end
  local images, keys = profiles(value.profiles or {}), provider.keys(value.keys)
  if value.providers == nil then
    if value.default_model ~= nil then
      schema.fail("default_model", "'default_model' names a provider, and there is none")
    end
    return { default_model = "", providers = json.array({}), images = images, adapters = terms,
      service = served }
  end
  schema.map(value.providers, "providers")
  local providers = json.array({})
  for i, name in ipairs(schema.keys(value.providers)) do
    local at = schema.join("providers", name)
    if i > MAX.providers then schema.fail(at, ("more than %d providers"):format(MAX.providers)) end
    if not name:find("^[a-z0-9][a-z0-9_-]*$") or #name > 64 then
      schema.fail(at, ("the provider '%s' must be lower-case letters, digits, '-' and '_'"):format(name))
    end
    providers[i] = provider.normalise(value.providers[name], at, keys)
    providers[i].name = name
  end
  if #providers == 0 then schema.fail("providers", "'providers' names no provider") end
  return { default_model = default_model(value.default_model, providers), providers = providers,
    images = images, adapters = terms, service = served }
end

--- The same, with a refusal raised as a text.
---@param value any
---@return table
function config.load(value)
  local normal, failure = schema.catch(config.normalise, value)
  if not normal then error(failure.message, 0) end
  return normal
end

return config
