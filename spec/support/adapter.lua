--- For specs of adapters: reads an adapter.lua as Bridle does, and runs a guest by itself with one run
--- frame, outside of any sandbox.

local source = os.getenv("BRIDLE_SOURCE") or "."
package.path = source .. "/spec/support/?.lua;" .. package.path
local sandbox = require "sandbox"
local adapters = require "bridle.adapters"

local adapter = { json = sandbox.json }

--- What an adapter.lua says for a profile; `ref` is ID@REVISION. Raises what Bridle would refuse.
---@param ref string
---@param profile string
---@return table
function adapter.load(ref, profile)
  local file = "adapters/" .. ref:match("^[^@]+") .. "/adapter.lua"
  return adapters.load(assert(load(sandbox.read(file), "@" .. file, "t", {}))(), ref, profile)
end

--- A packet for this adapter, as docs/run-frame.md has it; `changes` take the place of members.
---@param of table what load() gave
---@param changes table?
---@return table
function adapter.packet(of, changes)
  local json = sandbox.json
  local packet = {
    protocol = "bridle/run/1", runId = "run_spec", adapter = { id = of.id, revision = of.revision },
    profile = "workspace-v1", prompt = "do \"it\"\nnow",
    model = { id = "model-1", routes = of.routes, answerTokens = 1024, streaming = false },
    provider = { socket = "/broker/provider.sock", token = ("0123456789abcdef"):rep(4) },
    tools = of.tools, session = { intent = "new" },
    ceilings = { outputBytes = of.output, traceBytes = of.trace },
    deadline = "2099-01-01T00:00:00.000+00:00",
  }
  for key, value in pairs(changes or {}) do packet[key] = value ~= json.null and value or nil end
  return packet
end

--- One frame around a value.
---@param value table
---@return string
function adapter.frame(value)
  return string.pack(">s4", sandbox.json.encode(value))
end

--- Run a command with this frame on stdin. Its stdout, and whether it ended with status 0.
---@param command string
---@param frame string
---@return string, boolean
function adapter.run(command, frame)
  local name = os.tmpname()
  local file = assert(io.open(name, "wb"))
  file:write(frame)
  file:close()
  local pipe = assert(io.popen(("( %s ) < %s 2>/dev/null"):format(command, name), "r"))
  local out = pipe:read("a")
  local ok = pipe:close()
  os.remove(name)
  return out, ok == true
end

--- The one frame that these bytes are, as a value. Raises what is wrong with it, of what every result has.
---@param bytes string
---@param packet table
---@param of table
---@return table
function adapter.result(bytes, packet, of)
  assert(#bytes >= 4, "there is no frame")
  local length = string.unpack(">I4", bytes)
  assert(length == #bytes - 4, ("the frame says %d bytes and has %d"):format(length, #bytes - 4))
  assert(length <= packet.ceilings.outputBytes, "the frame is over its ceiling")
  local result = sandbox.json.decode(bytes:sub(5))
  local known = { runId = true, status = true, adapter = true, session = true, artifact = true, tools = true,
    usage = true, providerRevision = true }
  for key in pairs(result) do assert(known[key], "the result has the unknown key " .. key) end
  assert(result.runId == packet.runId, "the result is of another run")
  assert(result.adapter.id == of.id and result.adapter.revision == of.revision, "it is of another adapter")
  assert(result.status == "completed" or result.status == "failed", "its status is no status")
  assert(result.session.id == packet.session.id, "its session is another one")
  local allowed = {}
  for _, tool in ipairs(of.tools) do allowed[tool] = true end
  for _, receipt in ipairs(result.tools) do
    assert(allowed[receipt.name], "it used a tool that the adapter does not have")
    assert(receipt.count >= 1, "it counts a tool that it did not use")
  end
  return result
end

return adapter
