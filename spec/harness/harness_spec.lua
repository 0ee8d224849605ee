package.path = (os.getenv("BRIDLE_SOURCE") or ".") .. "/spec/support/?.lua;" .. package.path
local sandbox = require "sandbox"
local adapters = require "bridle.adapters"
local manifest = require "bridle.manifest"
local json = sandbox.json

local function made(f)
  local value = { id = "my-agent", revision = 2, entry = { "/opt/my/guest", "-x" },
    profiles = { ["workspace-v1"] = { tools = { "read", "bash" } } }, routes = { "chat", "models" },
    artifact = { kind = "text", bytes = 1000 }, ceilings = { outputBytes = 2000, traceBytes = 100 } }
  if f then f(value) end
  return value
end

describe("an adapter.lua", function()
  it("says what an adapter is, for one profile", function()
    local a = adapters.load(made(function(v) v.session = true end), "my-agent@2", "workspace-v1")
    assert.same({ "read", "bash" }, { table.unpack(a.tools) })
    assert.same({ "chat", "models" }, { table.unpack(a.routes) })
    assert.is_true(a.session)
    assert.is_false(a.gate)
    assert.same({ kind = "text", bytes = 1000 }, a.artifact)
  end)

  local cases = {
    { "an unknown key", function(v) v.image = "x" end, "'image' is not a key here" },
    { "environment", function(v) v.env = {} end, "'env' is not a key here" },
    { "an entry that is no path", function(v) v.entry = { "node" } end,
      "'entry%[1%]': expected an absolute path" },
    { "an entry with ..", function(v) v.entry = { "/opt/../bin/sh" } end, "absolute path" },
    { "no entry", function(v) v.entry = {} end, "at least 1 element" },
    { "a word too many", function(v) v.entry = { "/a", "b", "c", "d", "e", "f", "g", "h", "i" } end,
      "more than 8 elements" },
    { "a tool twice", function(v) v.profiles["workspace-v1"].tools = { "a", "a" } end, "is there twice" },
    { "a tool with a blank", function(v) v.profiles["workspace-v1"].tools = { "a b" } end,
      "a name of letters" },
    { "another profile", function(v) v.profiles = { ["run-v1"] = { tools = {} } } end,
      "is not made for the profile 'workspace%-v1'" },
    { "a route that is none", function(v) v.routes = { "embeddings" } end, "expected one of 'chat'" },
    { "an artifact over the ceiling", function(v) v.artifact.bytes = 524289 end,
      "an integer from 1 to 524288" },
    { "bytes of no artifact", function(v) v.artifact = { kind = "none", bytes = 1 } end,
      "there is no artifact" },
    { "an output over the ceiling", function(v) v.ceilings.outputBytes = 1048577 end, "1 to 1048576" },
    { "a trace over the ceiling", function(v) v.ceilings.traceBytes = 65537 end, "1 to 65536" },
    { "another revision", function(v) v.revision = 3 end, "it is the adapter 'my%-agent@3'" },
    { "another id", function(v) v.id = "other" end, "it is the adapter 'other@2'" },
  }
  for _, case in ipairs(cases) do
    it("is refused with " .. case[1], function()
      assert.matches(case[3], sandbox.refusal(adapters.load, made(case[2]), "my-agent@2", "workspace-v1"))
    end)
  end

  it("takes ceilings exactly", function()
    local a = adapters.load(made(function(v)
      v.ceilings = { outputBytes = 1048576, traceBytes = 65536 }
      v.artifact = { kind = "json", bytes = 524288 }
    end), "my-agent@2", "workspace-v1")
    assert.equal(1048576, a.output)
    assert.equal(524288, a.artifact.bytes)
  end)
end)

describe("the adapters of bridle.lua", function()
  local function terms(value) return adapters.terms { ["my-agent@2"] = value } end

  it("have a lease, which is bounded whatever is left out", function()
    local t = terms { profiles = { "workspace-v1" } }[1]
    assert.equal("my-agent@2", t.ref)
    assert.same({ requests = 64, tokens = 2000000, request_bytes = 64 << 20, response_bytes = 64 << 20,
      answer_tokens = 16384, in_flight = 8, seconds = 0 }, t.lease)
    assert.is_false(t.gate)
    assert.is_false(t.context_files)
    assert.equal(30 * 86400, t.keep)
  end)

  it("say more", function()
    local t = terms { profiles = { "mine" }, image = "pi-coding", gate = "ask", context_files = true,
      file = "/etc/bridle/adapter.lua", keep = "12h", lease = { requests = 1 } }[1]
    assert.is_true(t.gate)
    assert.equal(12 * 3600, t.keep)
    assert.equal(1, t.lease.requests)
    assert.equal("/etc/bridle/adapter.lua", t.file)
  end)

  local cases = {
    { "no profile", { profiles = {} }, "at least 1 element" },
    { "a profile that is a file", { profiles = { "./x.lua" } }, "the name of a profile" },
    { "a lease of nothing", { profiles = { "a" }, lease = { requests = 0 } }, "1 to 100000" },
    { "more than any lease", { profiles = { "a" }, lease = { tokens = 1000000001 } }, "1 to 1000000000" },
    { "an unknown member of a lease", { profiles = { "a" }, lease = { token = 1 } },
      "did you mean 'tokens'" },
    { "a relative file", { profiles = { "a" }, file = "adapter.lua" }, "an absolute path" },
    { "another gate", { profiles = { "a" }, gate = true }, "expected one of 'ask'" },
    { "a time without a unit", { profiles = { "a" }, keep = "30" }, "a time such as" },
    { "a key of an adapter.lua", { profiles = { "a" }, entry = { "/x" } }, "entry' is not a key here" },
  }
  for _, case in ipairs(cases) do
    it("are refused with " .. case[1], function()
      assert.matches(case[3], sandbox.refusal(terms, case[2]))
    end)
  end

  for _, name in ipairs { "my-agent", "my-agent@0", "my-agent@01", "My@1", "a--b@1", "@1", "a@1000001" } do
    it("are not named " .. name, function()
      assert.matches("not the name of an adapter",
        sandbox.refusal(adapters.terms, { [name] = { profiles = { "a" } } }))
    end)
  end
end)

describe("a manifest that declares a harness", function()
  local function harness(value) return manifest.harness(value) end

  it("names a pair", function()
    assert.same({ adapter = "pi-coding@1", profile = "workspace-v1" },
      harness { adapter = "pi-coding@1", profile = "workspace-v1" })
    assert.is_nil(harness(nil))
  end)

  it("names both", function()
    assert.matches("lacks the key 'profile'", sandbox.refusal(harness, { adapter = "pi-coding@1" }))
    assert.matches("lacks the key 'adapter'", sandbox.refusal(harness, { profile = "workspace-v1" }))
    assert.matches("with its revision", sandbox.refusal(harness, { adapter = "pi", profile = "a" }))
    assert.matches("the name of a profile, not a path",
      sandbox.refusal(harness, { adapter = "pi-coding@1", profile = "./mine.lua" }))
    assert.matches("expected a mapping", sandbox.refusal(harness, "pi-coding@1"))
  end)

  --- What the contract of a run lists, by each name that it may have.
  local forbidden = {
    ["which image"] = { "image", "container_image" },
    ["what runs in it"] = { "entrypoint", "command", "args" },
    ["never a path"] = { "host_path", "mount", "mounts", "volumes", "workspace", "state" },
    ["provider, route and model"] = { "provider", "provider_url", "base_url", "url", "route", "model" },
    ["credentials are named"] = { "credential", "key", "key_env", "api_key", "token" },
    ["how much of a provider"] = { "budget", "broker_budget", "lease", "requests" },
    ["how a sandbox is made"] = { "runtime_flags", "flags", "capabilities", "cap-add", "devices",
      "privileged", "seccomp" },
    ["the environment"] = { "env", "environment" },
    ["whose uid"] = { "uid", "gid", "user" },
    ["no network"] = { "network", "network_mode", "network-mode" },
    ["nothing is loaded"] = { "extensions", "extension_paths", "plugins", "packages" },
    ["the operator's to say"] = { "gate", "tools", "context_files" },
  }
  for reason, names in pairs(forbidden) do
    for _, name in ipairs(names) do
      it("may not say '" .. name .. "'", function()
        local text = sandbox.refusal(harness, { adapter = "pi-coding@1", profile = "workspace-v1",
          [name] = "x" })
        assert.matches("is refused: a declaration names an adapter and a profile", text, 1, true)
        assert.matches(reason, text, 1, true)
      end)
    end
  end

  it("may not say anything else either", function()
    assert.matches("'harness.hostPath' is not a key here",
      sandbox.refusal(harness, { adapter = "pi-coding@1", profile = "workspace-v1", hostPath = "/" }))
  end)

  it("is found in a document that is not checked otherwise", function()
    assert.same({ "pi-coding@1", "workspace-v1" },
      { manifest.declared { harness = { adapter = "pi-coding@1", profile = "workspace-v1" },
        other = json.null } })
    assert.same({ "", "" }, { manifest.declared {} })
  end)
end)
