--- The task manifest: a parsed document becomes a normalised one and the rules that it makes. It is
--- data from somebody who is not trusted; nothing in it is run, and it grants nothing by itself.

local adapters = require "bridle.adapters"
local json = require "json"
local nearest = require "bridle.nearest"
local pattern = require "bridle.pattern"
local schema = require "bridle.schema"

local manifest = {}

local KEYS = { id = "required", title = "required", goal = "required", acceptance = "required",
  allowed_paths = "required", permissions = "required", budget = "optional", delivery = "required",
  harness = "optional" }
--- What a declaration may not say, whatever it is called, and whose word it is.
local WHOSE = {
  image = "which image a sandbox has is said in bridle.lua, or with --image",
  program = "what runs in it is said by the adapter itself (adapter.lua)",
  place = "what a sandbox sees of the host is made by its profile, and is never a path of a manifest",
  provider = "which provider, route and model are used is said in bridle.lua, or with -m",
  key = "credentials are named in bridle.lua, and never reach a sandbox",
  lease = "how much of a provider it may use is said in bridle.lua ('lease' of its adapter)",
  runtime = "how a sandbox is made is said by its profile, which is the operator's",
  environment = "the environment of a sandbox is fixed",
  identity = "whose uid a sandbox has is said by its profile",
  network = "a sandbox has no network; a profile cannot give it one either",
  extension = "what is executed comes from the image; nothing is loaded by a path or the name of a package",
  operator = "that is the operator's to say, in bridle.lua",
}
local FORBIDDEN = {
  image = "image", container = "image", container_image = "image",
  entry = "program", entrypoint = "program", command = "program", argv = "program", args = "program",
  path = "place", host_path = "place", mount = "place", mounts = "place", bind = "place", binds = "place",
  volume = "place", volumes = "place", workspace = "place", state = "place", tmp = "place",
  provider = "provider", provider_url = "provider", base_url = "provider", url = "provider",
  route = "provider", routes = "provider", model = "provider", api = "provider",
  key = "key", keys = "key", key_env = "key", api_key = "key", credential = "key", credentials = "key",
  token = "key", secret = "key", secrets = "key",
  lease = "lease", budget = "lease", broker = "lease", broker_budget = "lease", requests = "lease",
  tokens = "lease", request_bytes = "lease", response_bytes = "lease",
  runtime = "runtime", runtime_flags = "runtime", flags = "runtime", options = "runtime",
  backend = "runtime", limits = "runtime", seccomp = "runtime", landlock = "runtime", devices = "runtime",
  device = "runtime", capabilities = "runtime", cap_add = "runtime", privileged = "runtime",
  env = "environment", environment = "environment",
  uid = "identity", gid = "identity", user = "identity", group = "identity", identity = "identity",
  network = "network", network_mode = "network", net = "network", ports = "network", proxy = "network",
  extension = "extension", extensions = "extension", extension_paths = "extension", plugin = "extension",
  plugins = "extension", skills = "extension", packages = "extension", modules = "extension",
  gate = "operator", context_files = "operator", file = "operator", keep = "operator", tools = "operator",
  system = "operator", session = "operator",
}
local EFFECTS = { "allow", "ask", "deny" }
local DELIVERY = { "pull_request", "merge", "artifact", "none" }
local ACTIONS = { "process.exec", "fs.read", "fs.write", "network", "git.push", "mcp.call",
  "workspace.promote", "adapter.run", "adapter.tool" }
--- As core/base/limits.h has them.
local MAX = { goal = 512 * 1024, title = 512, acceptance = 64, criterion = 4096, paths = 64,
  path = 4095, actions = 64, patterns = 2000, tokens = 10000000, calls = 1000 }

local BAD_PATH = "INVALID_ALLOWED_PATH"

--- Why an entry of allowed_paths is refused, or nil; the second result is its normal form.
---@param value string
---@return string?, string?
function manifest.path_problem(value)
  if value == "**" or value == "/**" or value == "./**" then
    return "the whole workspace cannot be granted; name the directories"
  end
  if value:sub(1, 1) == "/" then return "it is absolute; paths are relative to the workspace" end
  if value:find("[,\\]") then return "',' and '\\' cannot stand in an allowed path" end
  local path, tree = value, false
  if path:sub(-3) == "/**" then
    path, tree = path:sub(1, -4), true
  elseif path:sub(-1) == "/" then
    path, tree = path:sub(1, -2), true
  end
  if path:find("[*?]") then
    return "the only wildcard is '/**' at the end of a directory"
  end
  for segment in (path .. "/"):gmatch("([^/]*)/") do
    if segment == ".." then return "'..' leaves the workspace" end
    if segment == "" or segment == "." then
      return "it has an empty segment or '.'; write it without"
    end
    if #segment > 255 then return "one of its names is longer than 255 bytes" end
  end
  return nil, tree and path .. "/**" or path
end

--- The allowed paths in their normal form.
---@param list any
---@param at string the path of the list in the document
---@return table
function manifest.allowed_paths(list, at)
  schema.list(list, at, 1, MAX.paths)
  local out, seen = json.array({}), {}
  for i, value in ipairs(list) do
    local path = schema.join(at, i)
    schema.text(value, path, MAX.path, false, BAD_PATH)
    local problem, normal = manifest.path_problem(value)
    if problem then
      schema.fail(path, ("the allowed path '%s' is refused: %s"):format(value, problem), BAD_PATH)
    end
    if seen[normal] then
      schema.fail(path, ("the allowed path '%s' is there twice"):format(value), BAD_PATH)
    end
    seen[normal] = true
    out[i] = normal
  end
  return out
end

local function check_action(action, at, warn)
  if #action > 63 or not action:find("^[a-z][a-z0-9_.-]*$") then
    schema.fail(at, ("'%s' is not an action: at most 63 lower-case letters, digits, '.', '-', '_'")
      :format(action))
  end
  for _, known in ipairs(ACTIONS) do
    if action == known then return end
  end
  local near, edits = nearest.word(action, ACTIONS)
  if near and edits == 1 then
    schema.fail(at, ("there is no action '%s'; did you mean '%s'?"):format(action, near))
  end
  warn(("'%s': no part of this version asks about the action '%s'"):format(at, action))
end

local function check_effect(value, at)
  return schema.word(value, at, EFFECTS)
end

--- permissions: the normalised map.
local function permissions(value, warn)
  schema.map(value, "permissions")
  local out, count = {}, 0
  for n, action in ipairs(schema.keys(value)) do
    local at = schema.join("permissions", action)
    if n > MAX.actions then schema.fail(at, ("more than %d actions"):format(MAX.actions)) end
    check_action(action, at, warn)
    local entry = value[action]
    if type(entry) == "string" then
      out[action] = check_effect(entry, at)
    elseif type(entry) == "table" and not json.is_array(entry) then
      local kind, map = pattern.matcher(action), {}
      for _, p in ipairs(schema.keys(entry)) do
        local here = schema.join(at, p)
        count = count + 1
        if count > MAX.patterns then
          schema.fail(here, ("more than %d patterns"):format(MAX.patterns))
        end
        local problem = p ~= "*" and pattern.problem(kind, p)
        if problem then
          schema.fail(here, ("the pattern '%s' of '%s' is refused: %s"):format(
            (p:gsub("%c", "?")), at, problem))
        end
        map[p] = check_effect(entry[p], here)
      end
      if next(map) == nil then
        schema.fail(at, ("'%s' is an empty map; write 'deny' or name patterns"):format(at))
      end
      out[action] = map
    else
      schema.expected(at, "'allow', 'ask', 'deny' or a map of patterns", entry)
    end
  end
  return out
end

local function budget(value)
  if value == nil then return {} end
  schema.object(value, "budget", { max_model_tokens = "optional", max_tool_calls = "optional" })
  local out = {}
  if value.max_model_tokens ~= nil then
    out.max_model_tokens = schema.integer(value.max_model_tokens, "budget.max_model_tokens", 1, MAX.tokens)
  end
  if value.max_tool_calls ~= nil then
    out.max_tool_calls = schema.integer(value.max_tool_calls, "budget.max_tool_calls", 1, MAX.calls)
  end
  return out
end

local function acceptance(value)
  schema.list(value, "acceptance", 1, MAX.acceptance)
  local out = json.array({})
  for i, text in ipairs(value) do
    out[i] = schema.text(text, schema.join("acceptance", i), MAX.criterion, true)
  end
  return out
end

--- The pair of adapter and profile that a manifest declares, or nil. It names them and nothing else.
---@param value any
---@return table?
function manifest.harness(value)
  if value == nil then return nil end
  schema.map(value, "harness")
  for _, key in ipairs(schema.keys(value)) do
    local whose = FORBIDDEN[key:gsub("-", "_"):lower()]
    if whose then
      schema.fail(schema.join("harness", key),
        ("'%s' is refused: a declaration names an adapter and a profile; %s"):format(
          schema.join("harness", key), WHOSE[whose]))
    end
  end
  schema.object(value, "harness", { adapter = "required", profile = "required" })
  local ref = schema.text(value.adapter, "harness.adapter", 79)
  if not adapters.split(ref) then
    schema.expected("harness.adapter", "an adapter with its revision, such as 'pi-coding@1'", ref)
  end
  local profile = schema.text(value.profile, "harness.profile", 63)
  if not schema.is_kebab(profile) then
    schema.expected("harness.profile", "the name of a profile, not a path", profile)
  end
  return { adapter = ref, profile = profile }
end

--- The same of a document that was not checked otherwise: two texts, "" for none.
---@param tree any
---@return string, string
function manifest.declared(tree)
  local declared = manifest.harness(schema.map(tree, "").harness)
  if not declared then return "", "" end
  return declared.adapter, declared.profile
end

--- Check a parsed document and give its normal form; refusals are raised as schema failures.
---@param tree any
---@param warn fun(text: string)
---@return table
function manifest.normalise(tree, warn)
  schema.object(tree, "", KEYS)
  local id = schema.text(tree.id, "id", 128)
  if not schema.is_kebab(id) then
    schema.fail("id", ("'id': expected kebab-case such as 'fix-parser', found '%s'"):format(id))
  end
  local delivery = schema.object(tree.delivery, "delivery", { type = "required" })
  return {
    id = id,
    title = schema.text(tree.title, "title", MAX.title),
    goal = schema.text(tree.goal, "goal", MAX.goal, true),
    acceptance = acceptance(tree.acceptance),
    allowed_paths = manifest.allowed_paths(tree.allowed_paths, "allowed_paths"),
    permissions = permissions(tree.permissions, warn),
    budget = budget(tree.budget),
    delivery = { type = schema.word(delivery.type, "delivery.type", DELIVERY) },
    harness = manifest.harness(tree.harness),
    generated = false,
  }
end

--- The manifest of a run that has only a goal.
---@param goal string
---@param allowed string[]
---@return table
function manifest.generate(goal, allowed)
  schema.text(goal, "goal", MAX.goal, true)
  local title = goal:match("[^\n]*%S[^\n]*") or goal
  title = title:gsub("\t", " "):match("^%s*(.-)%s*$")
  if #title > 120 then title = title:sub(1, (utf8.offset(title, 0, 118) or 118) - 1) .. "..." end
  return {
    id = "adhoc", title = title == "" and "adhoc" or title, goal = goal,
    acceptance = json.array({ "The goal is reached." }),
    allowed_paths = #allowed > 0 and manifest.allowed_paths(json.array(allowed), "allowed_paths")
      or json.array({}),
    permissions = {}, budget = {}, delivery = { type = "none" }, generated = true,
  }
end

--- The rules and fallbacks of a normalised manifest. With `tighten`, its allows are left out, each
--- with a warning: the manifest lies in the workspace, where the agent's side writes.
---@param m table
---@param tighten boolean
---@param warn fun(text: string)
---@return table rules, table fallbacks
function manifest.rules(m, tighten, warn)
  local rules, fallbacks = {}, {}
  local function add(id, action, match, p, effect, otherwise)
    if tighten and effect == "allow" then
      warn(("'%s' is not counted: a manifest inside the workspace can only tighten%s; to let it allow, "
        .. "keep it outside of the workspace"):format(id, otherwise))
      return
    end
    rules[#rules + 1] = { id = id, action = action, match = match, pattern = p, effect = effect }
  end
  for _, action in ipairs(schema.keys(m.permissions)) do
    local entry, id = m.permissions[action], "manifest:" .. action
    if type(entry) == "string" then
      add(id, action, "any", "", entry, "")
    else
      -- who decides instead of an allow that is not counted
      local otherwise = not entry["*"] and (" (now '%s:unmatched': deny)"):format(id)
        or entry["*"] ~= "allow" and (" (now '%s:*': %s)"):format(id, entry["*"]) or ""
      for _, p in ipairs(schema.keys(entry)) do
        if p == "*" then
          add(id .. ":*", action, "any", "", entry[p], "")
        else
          add(id .. ":" .. p, action, pattern.matcher(action), p, entry[p], otherwise)
        end
      end
      if not entry["*"] then
        fallbacks[#fallbacks + 1] = { id = id .. ":unmatched", action = action, effect = "deny" }
      end
    end
  end
  return rules, fallbacks
end

return manifest
