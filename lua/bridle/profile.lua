--- Isolation profiles: data that the operator chose. A profile file becomes rules (the ceiling of
--- every policy and manifest) and a launch object, which core/session reads into the launch plan and
--- checks against the compiled-in ceiling. Nothing here makes anything larger than that.

local json = require "json"
local schema = require "bridle.schema"

local profile = {}

--- The profiles that are built in, in the order in which they are listed.
profile.BUILTIN = { "run-v1", "run-owner-v1", "run-nolandlock-v1", "workspace-v1",
  "workspace-tmpfs-v1", "observer-v1", "observer-native-v1" }

local KEYS = { name = "required", version = "required", rules = "required", sandbox = "required",
  offers = "optional" }
local SANDBOX = { backend = "required", image = "required", identity = "required",
  landlock = "required", workspace = "required", noexec = "optional", limits = "required",
  disks = "optional", sockets = "optional", alone = "optional" }
local LIMITS = { memory_bytes = "required", pids = "required", cpu_percent = "required",
  nofile = "required", fsize_bytes = "required", tmp_bytes = "required", tmp_inodes = "required",
  output_bytes = "required", exec_seconds = "required", wall_seconds = "required" }
local DISKS = { workspace = "optional", state = "optional", scratch = "optional" }
local DISK = { kind = "required", bytes = "required", inodes = "required", name = "optional" }
local RULE = { id = "required", effect = "required", actions = "required", match = "required",
  patterns = "required", reason = "optional" }
local SOCKETS = { "provider", "gate" }
local NOEXEC = { "tmp", "home", "workspace", "state", "scratch" }
local MAX = { rules = 1000, offers = 8, version = 1000000 }
local INTEGER_MAX = 1 << 53 -- what every reader of JSON keeps

local function check_rules(list)
  local rules = json.array({})
  for i, rule in ipairs(schema.list(list, "rules", 1, MAX.rules)) do
    local at = schema.join("rules", i)
    schema.object(rule, at, RULE)
    schema.text(rule.id, schema.join(at, "id"), 64)
    schema.word(rule.effect, schema.join(at, "effect"), { "ask", "deny" })
    schema.word(rule.match, schema.join(at, "match"), { "any", "command", "path", "host", "text" })
    local actions, patterns = json.array({}), json.array({})
    for k, action in ipairs(schema.list(rule.actions, schema.join(at, "actions"), 1, 64)) do
      actions[k] = schema.text(action, schema.join(schema.join(at, "actions"), k), 63)
    end
    local least = rule.match == "any" and 0 or 1
    for k, p in ipairs(schema.list(rule.patterns, schema.join(at, "patterns"), least, MAX.rules)) do
      patterns[k] = schema.text(p, schema.join(schema.join(at, "patterns"), k), 1024)
    end
    rules[i] = { id = rule.id, effect = rule.effect, actions = actions, match = rule.match,
      patterns = patterns, reason = rule.reason }
  end
  return rules
end

local function check_image(value, at)
  schema.text(value, at, 80)
  if value == "host" or value == "none" or value == "required" then return value end
  if #value == 71 and value:find("^sha256:") and not value:sub(8):find("[^0-9a-f]") then
    return value
  end
  schema.expected(at, "'host', 'none', 'required' or 'sha256:' and 64 hex digits", value)
end

local function check_limits(value, at)
  local out = {}
  schema.object(value, at, LIMITS)
  for _, name in ipairs(schema.keys(LIMITS)) do
    out[name] = schema.integer(value[name], schema.join(at, name), 1, INTEGER_MAX)
  end
  return out
end

local function check_disks(value, at)
  local out = {}
  schema.object(value, at, DISKS)
  for _, name in ipairs(schema.keys(value)) do
    local here, disk = schema.join(at, name), value[name]
    schema.object(disk, here, DISK)
    if disk.name ~= nil and (name ~= "state" or disk.kind ~= "ext4" or type(disk.name) ~= "string"
      or not schema.is_kebab(disk.name) or #disk.name > 63) then
      schema.fail(schema.join(here, "name"), ("'%s.name': only a 'state' disk of kind 'ext4' outlives a run,"
        .. " under a kebab-case name of at most 63 characters"):format(here))
    end
    out[name] = {
      kind = schema.word(disk.kind, schema.join(here, "kind"), { "tmpfs", "ext4" }),
      bytes = schema.integer(disk.bytes, schema.join(here, "bytes"), 1, INTEGER_MAX),
      inodes = schema.integer(disk.inodes, schema.join(here, "inodes"), 1, INTEGER_MAX),
      name = disk.name,
    }
  end
  return out
end

local function check_words(list, at, words)
  local out, seen = json.array({}), {}
  for i, place in ipairs(schema.list(list, at, 0, #words)) do
    schema.word(place, schema.join(at, i), words)
    if seen[place] then schema.fail(schema.join(at, i), ("'%s': '%s' is there twice"):format(at, place)) end
    seen[place] = true
    out[i] = place
  end
  return out
end

local function check_flag(value, at)
  if value ~= nil and type(value) ~= "boolean" then schema.expected(at, "true or false", value) end
  return value == true
end

--- What a plan is made of, from the section 'sandbox'.
local function launch(value)
  local s = schema.object(value.sandbox, "sandbox", SANDBOX)
  return {
    name = value.name,
    version = value.version,
    backend = schema.word(s.backend, "sandbox.backend", { "native", "bwrap", "docker" }),
    image = check_image(s.image, "sandbox.image"),
    identity = schema.word(s.identity, "sandbox.identity", { "dedicated", "owner" }),
    landlock = schema.word(s.landlock, "sandbox.landlock", { "required", "none" }),
    workspace = schema.word(s.workspace, "sandbox.workspace", { "none", "bind", "lease" }),
    noexec = check_words(s.noexec or {}, "sandbox.noexec", NOEXEC),
    sockets = check_words(s.sockets or {}, "sandbox.sockets", SOCKETS),
    alone = check_flag(s.alone, "sandbox.alone"),
    limits = check_limits(s.limits, "sandbox.limits"),
    disks = check_disks(s.disks or {}, "sandbox.disks"),
  }
end

local function check_head(value)
  schema.object(value, "", KEYS)
  if type(value.name) ~= "string" or not schema.is_kebab(value.name) or #value.name > 63 then
    schema.expected("name", "lower-case words and digits joined by '-', at most 63 bytes", value.name)
  end
  schema.integer(value.version, "version", 1, MAX.version)
end

--- The profiles to try where this one is not possible. They are built in, so that a profile can
--- offer nothing that was not shipped.
local function offers(list, name)
  local out = json.array({})
  for i, offer in ipairs(schema.list(list, "offers", 0, MAX.offers)) do
    local at = schema.join("offers", i)
    schema.word(offer, at, profile.BUILTIN)
    if offer == name then schema.fail(at, ("'%s': a profile cannot offer itself"):format(at)) end
    local other = require("profiles." .. offer)
    out[i] = launch(other)
  end
  return out
end

--- Check what a profile file returned and give its normal form: rules and launch.
---@param value any
---@return table
function profile.normalise(value)
  check_head(value)
  local out = launch(value)
  out.offers = offers(value.offers or {}, value.name)
  return { name = value.name, version = value.version, rules = check_rules(value.rules), launch = out }
end

--- The same, with a refusal raised as a text.
---@param value any
---@return table
function profile.load(value)
  if type(value) ~= "table" then
    error("the profile must end with 'return { name = ..., version = 1, rules = ..., sandbox = ... }'", 0)
  end
  local normal, failure = schema.catch(profile.normalise, value)
  if not normal then error(failure.message, 0) end
  return normal
end

return profile
