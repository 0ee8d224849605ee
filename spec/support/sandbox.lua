--- Lets specs run the sandbox's Lua modules under plain Lua 5.4: stands in for the modules that
--- bridle-script provides in C. `require "json"` is the strict one of the adapter specs.

local source = os.getenv("BRIDLE_SOURCE") or "."

local sandbox = {}

local json = assert(loadfile(source .. "/spec/adapters/json_shim.lua"))()
local mark = getmetatable(json.array({}))
json.is_array = function(value) return type(value) == "table" and getmetatable(value) == mark end
package.preload["json"] = function() return json end
sandbox.json = json

package.preload["bridle.host"] = function()
  return {
    where = function(level)
      local info = debug.getinfo(level + 1, "Sl")
      if not info or info.currentline <= 0 then return nil end
      return info.short_src, info.currentline
    end,
    keep = function() end,
    literal = function(text)
      return #text:match("^[^*?]*"), #text:match("[^*?]*$")
    end,
    part = string.sub,
    collecting = function() return false end,
    rule = function() end, -- everything is looked at closely
    names = function() end,
    rows = function() return json.array({}) end,
    row = function(rows, action, command, effect, file, id, line, match, pattern, reason, from, when)
      rows[#rows + 1] = { action = action, command = command, effect = effect, file = file, id = id,
        line = line, match = match, pattern = pattern, reason = reason, source = from, when = when }
    end,
    class = function(metatable)
      metatable.__metatable = false
      return function() return setmetatable({}, metatable) end
    end,
    defined = function(f)
      local info = debug.getinfo(f, "S")
      if info.linedefined <= 0 then return nil end
      return info.short_src, info.linedefined
    end,
    bundles = function()
      return { "ci", "default", "denials", "harmless", "review-only", "strict" }
    end,
    bundle = function(name)
      return assert(load(sandbox.read("policy/" .. name .. ".lua"), "@policy/" .. name .. ".lua", "t"))()
    end,
  }
end

for _, name in ipairs { "run-v1", "run-owner-v1", "run-nolandlock-v1", "workspace-v1",
    "workspace-tmpfs-v1", "observer-v1", "observer-native-v1" } do
  package.preload["profiles." .. name] = function()
    return assert(loadfile(source .. "/profiles/" .. name .. ".lua"))()
  end
end

--- Run a policy text as the file `policy.lua`.
---@param text string
---@return any
function sandbox.policy(text)
  return assert(load("local policy = require 'bridle.policy'\n" .. text, "@policy.lua", "t"))()
end

--- The message of the error that f raises; fails if it raises none.
---@param f function
---@return string
function sandbox.refusal(f, ...)
  local ok, err = pcall(f, ...)
  if ok then error("nothing was refused", 2) end
  return type(err) == "table" and err.message or tostring(err)
end

--- A whole shipped file.
---@param path string
---@return string
function sandbox.read(path)
  local file <close> = assert(io.open(source .. "/" .. path, "rb"))
  return file:read("a")
end

return sandbox
