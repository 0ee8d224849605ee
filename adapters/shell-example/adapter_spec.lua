--- What an adapter has to keep: its adapter.lua is one that Bridle accepts, and its guest reads one frame
--- and answers one. A spec of another adapter begins as a copy of this one.
package.path = (os.getenv("BRIDLE_SOURCE") or ".") .. "/spec/support/?.lua;" .. package.path
local adapter = require "adapter"

local GUEST = (os.getenv("BRIDLE_SOURCE") or ".") .. "/adapters/shell-example/guest/guest.sh"

describe("shell-example@1", function()
  for _, profile in ipairs { "workspace-v1", "workspace-tmpfs-v1" } do
    it("is made for " .. profile, function()
      assert.same({ "list" }, { table.unpack(adapter.load("shell-example@1", profile).tools) })
    end)
  end

  it("is made for no other profile, and is no other revision", function()
    assert.has_error(function() adapter.load("shell-example@1", "observer-v1") end)
    assert.has_error(function() adapter.load("shell-example@2", "workspace-v1") end)
  end)

  --- The guest with a `curl` of its own that answers this, or with none.
  local function run(answer)
    local of = adapter.load("shell-example@1", "workspace-v1")
    local packet = adapter.packet(of)
    local dir = os.tmpname()
    os.remove(dir)
    os.execute(("mkdir %s; for n in sh dd od head sed ls wc tr cat; do ln -s $(command -v $n) %s/$n; done")
      :format(dir, dir))
    if answer then
      local curl = assert(io.open(dir .. "/curl", "w"))
      curl:write(("#!%s/sh\ncat > %s/asked\n%s\n"):format(dir, dir, answer))
      curl:close()
      os.execute("chmod +x " .. dir .. "/curl")
    end
    local out, ok = adapter.run(("PATH=%s sh %s"):format(dir, GUEST), adapter.frame(packet))
    local asked = io.open(dir .. "/asked")
    local text = asked and asked:read("a")
    if asked then asked:close() end
    os.execute("rm -rf " .. dir)
    return adapter.result(out, packet, of), ok, text
  end

  it("asks the model once and gives back what it said", function()
    local result, ok, asked = run([[cat <<'END'
{"choices":[{"message":{"content":"two \"files\""}}]}
END]])
    assert.is_true(ok)
    assert.equal("completed", result.status)
    assert.equal('two "files"', result.artifact.text)
    assert.equal(1, result.tools[1].count)
    local body = adapter.json.decode(asked)
    assert.equal("model-1", body.model)
    assert.matches('do "it"\nnow', body.messages[1].content, 1, true)
  end)

  it("says that it failed when the provider refuses", function()
    local result, ok = run("exit 22")
    assert.is_true(ok)
    assert.equal("failed", result.status)
  end)

  it("does without a model where there is no curl", function()
    local result, ok = run(nil)
    assert.is_true(ok)
    assert.equal("completed", result.status)
    assert.matches("no curl", result.artifact.text)
    assert.equal(0, #result.tools)
  end)
end)
