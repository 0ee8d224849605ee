package.path = (os.getenv("BRIDLE_SOURCE") or ".") .. "/spec/support/?.lua;" .. package.path
local sandbox = require "sandbox"
local profile = require "bridle.profile"

--- A fresh copy of the text of a built-in profile, changed by f.
local function made(name, f)
  local value = assert(load(sandbox.read("profiles/" .. name .. ".lua"), "@" .. name, "t"))()
  if f then f(value) end
  return value
end

local function refused(f)
  return sandbox.refusal(profile.load, made("run-v1", f))
end

describe("the built-in profiles", function()
  local files = {}
  for line in io.popen("ls '" .. (os.getenv("BRIDLE_SOURCE") or ".") .. "/profiles'"):lines() do
    files[#files + 1] = line:match("^(.+)%.lua$")
  end

  it("are exactly those that the compiler knows", function()
    local known = { table.unpack(profile.BUILTIN) }
    table.sort(known)
    table.sort(files)
    assert.same(files, known)
  end)

  for _, name in ipairs(profile.BUILTIN) do
    it(name .. " is valid, has its own name, no network, and offers others", function()
      local p = profile.load(made(name))
      assert.equal(name, p.name)
      assert.equal(name, p.launch.name)
      local denies = false
      for _, rule in ipairs(p.rules) do
        denies = denies or (rule.effect == "deny" and rule.actions[1] == "network")
      end
      assert.is_true(denies)
      for _, offer in ipairs(p.launch.offers) do
        assert.not_equal(name, offer.name)
        assert.is_nil(offer.offers)
      end
    end)
  end

  it("offer what differs in one requirement", function()
    local offers = profile.load(made("run-v1")).launch.offers
    assert.equal("run-owner-v1", offers[1].name)
    assert.equal("owner", offers[1].identity)
    assert.equal("run-nolandlock-v1", offers[2].name)
    assert.equal("none", offers[2].landlock)
    assert.equal("workspace-tmpfs-v1", profile.load(made("workspace-v1")).launch.offers[1].name)
  end)

  it("require an image where the workspace is a copy", function()
    for _, name in ipairs { "workspace-v1", "workspace-tmpfs-v1" } do
      local launch = profile.load(made(name)).launch
      assert.equal("required", launch.image)
      assert.equal("lease", launch.workspace)
      assert.is_table(launch.disks.workspace)
    end
  end)
end)

describe("a profile", function()
  it("keeps what it says", function()
    local p = profile.load(made("run-v1", function(v)
      v.name, v.version = "mine-v2", 2
      v.sandbox.noexec = { "tmp", "home" }
      v.sandbox.limits.pids = 7
      v.sandbox.image = "sha256:" .. ("a1"):rep(32)
      v.sandbox.disks = { scratch = { kind = "tmpfs", bytes = 1 << 20, inodes = 16 },
        state = { kind = "ext4", bytes = 1 << 20, inodes = 16, name = "notes" } }
      v.offers = nil
    end))
    assert.equal("mine-v2", p.launch.name)
    assert.equal(2, p.launch.version)
    assert.same({ "tmp", "home" }, { table.unpack(p.launch.noexec) })
    assert.equal(7, p.launch.limits.pids)
    assert.equal(16, p.launch.disks.scratch.inodes)
    assert.equal("notes", p.launch.disks.state.name)
    assert.equal(0, #p.launch.offers)
  end)

  local cases = {
    { "an unknown key", function(v) v.sandbx = {} end,
      "'sandbx' is not a key here; did you mean 'sandbox'%?" },
    { "an unknown key of the sandbox", function(v) v.sandbox.netwrok = "host" end,
      "'sandbox%.netwrok' is not a key here" },
    { "a mount", function(v) v.sandbox.mounts = {} end, "'sandbox%.mounts' is not a key here" },
    { "a misspelt limit", function(v) v.sandbox.limits.pid = 1 end,
      "'sandbox%.limits%.pid' is not a key here; did you mean 'pids'%?" },
    { "a missing limit", function(v) v.sandbox.limits.nofile = nil end,
      "'sandbox%.limits' lacks the key 'nofile'" },
    { "a limit of 0", function(v) v.sandbox.limits.pids = 0 end,
      "'sandbox%.limits%.pids': expected an integer" },
    { "a limit that is no integer", function(v) v.sandbox.limits.pids = 1.5 end, "expected an integer" },
    { "an unknown backend", function(v) v.sandbox.backend = "natvie" end,
      "did you mean 'native'%?" },
    { "a name for an image", function(v) v.sandbox.image = "debian" end,
      "'sandbox%.image': expected 'host'" },
    { "a short id", function(v) v.sandbox.image = "sha256:abc" end, "'sandbox%.image'" },
    { "an id in capitals", function(v) v.sandbox.image = "sha256:" .. ("A"):rep(64) end,
      "'sandbox%.image'" },
    { "an unknown identity", function(v) v.sandbox.identity = "root" end, "'sandbox%.identity'" },
    { "an unknown disk", function(v) v.sandbox.disks = { stat = {} } end, "did you mean 'state'%?" },
    { "a disk without inodes", function(v) v.sandbox.disks = { state = { kind = "ext4", bytes = 1 } } end,
      "'sandbox%.disks%.state' lacks the key 'inodes'" },
    { "a disk of no kind", function(v)
      v.sandbox.disks = { state = { kind = "xfs", bytes = 1, inodes = 1 } }
    end, "'sandbox%.disks%.state%.kind'" },
    { "a name for scratch", function(v)
      v.sandbox.disks = { scratch = { kind = "ext4", bytes = 1, inodes = 1, name = "a" } }
    end, "'sandbox%.disks%.scratch%.name': only a 'state' disk" },
    { "a name for memory", function(v)
      v.sandbox.disks = { state = { kind = "tmpfs", bytes = 1, inodes = 1, name = "a" } }
    end, "'sandbox%.disks%.state%.name': only a 'state' disk" },
    { "a name that is a path", function(v)
      v.sandbox.disks = { state = { kind = "ext4", bytes = 1, inodes = 1, name = "../a" } }
    end, "'sandbox%.disks%.state%.name': only a 'state' disk" },
    { "noexec twice", function(v) v.sandbox.noexec = { "tmp", "tmp" } end, "is there twice" },
    { "noexec elsewhere", function(v) v.sandbox.noexec = { "/tmp" } end, "'sandbox%.noexec%[1%]'" },
    { "no rules", function(v) v.rules = {} end, "'rules' needs at least 1 element" },
    { "a rule that allows", function(v) v.rules[1].effect = "allow" end, "'rules%[1%]%.effect'" },
    { "a rule with an unknown key", function(v) v.rules[1].efect = "deny" end, "did you mean 'effect'%?" },
    { "an unknown offer", function(v) v.offers = { "run-owner" } end, "did you mean 'run%-owner%-v1'%?" },
    { "an offer of itself", function(v) v.offers = { "run-v1" } end, "cannot offer itself" },
    { "a bad name", function(v) v.name = "Run V1" end, "'name': expected" },
    { "a long name", function(v) v.name = ("a"):rep(64) end, "'name': expected" },
    { "version 0", function(v) v.version = 0 end, "'version': expected an integer" },
    { "an environment", function(v) v.sandbox.environment = { A = "b" } end,
      "'sandbox%.environment' is not a key here" },
  }
  for _, case in ipairs(cases) do
    it("is refused with " .. case[1], function()
      assert.matches(case[3], refused(case[2]))
    end)
  end

  it("is refused if it is no table", function()
    assert.matches("must end with 'return", sandbox.refusal(profile.load, nil))
  end)

  it("may have a name of 63 bytes", function()
    assert.equal(63, #profile.load(made("run-v1", function(v) v.name = ("a"):rep(63) end)).name)
  end)
end)
