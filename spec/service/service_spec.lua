package.path = (os.getenv("BRIDLE_SOURCE") or ".") .. "/spec/support/?.lua;" .. package.path
local sandbox = require "sandbox"
local service = require "bridle.service"

local function refused(value)
  return sandbox.refusal(service.load, value)
end

describe("service of bridle.lua", function()
  it("may say nothing", function()
    local s = service.load({})
    assert.same(0, #s.listen)
    assert.equal("", s.root)
    assert.is_false(s.detach)
    assert.same({}, s.limits)
    assert.is_nil(s.tls)
  end)

  it("keeps numbers and names of users apart", function()
    local s = service.load({ users = { "alice", 1000, "bob", 0 } })
    assert.equal(2, #s.users)
    assert.equal(2, #s.uids)
    assert.equal(1000, s.uids[1])
  end)

  it("makes tables of listeners of texts", function()
    local s = service.load({ listen = { "127.0.0.1:1", { address = "10.0.0.1:2", plaintext = true } } })
    assert.equal("127.0.0.1:1", s.listen[1].address)
    assert.is_false(s.listen[1].tls)
    assert.is_true(s.listen[2].plaintext)
  end)

  it("sorts certificates, so that a configuration is one text", function()
    local s = service.load({ certificates = { b = "observe", a = "operate" } })
    assert.equal("a", s.certificates[1].name)
    assert.equal("operate", s.certificates[1].access)
  end)

  it("takes each limit at its ends and not beyond", function()
    for name, range in pairs({ running = { 1, 64 }, handshake_seconds = { 1, 600 },
      fragments = { 1, 65536 }, requests_per_second = { 0, 1000000 }, ask_seconds = { 1, 86400 } }) do
      for _, good in ipairs(range) do
        assert.equal(good, service.load({ limits = { [name] = good } }).limits[name])
      end
      assert.matches("an integer from", refused({ limits = { [name] = range[1] - 1 } }))
      assert.matches("an integer from", refused({ limits = { [name] = range[2] + 1 } }))
      assert.matches("an integer from", refused({ limits = { [name] = range[1] + 0.5 } }))
    end
  end)

  for text, value in pairs({
    ["did you mean 'limits'"] = { limit = {} },
    ["did you mean 'connections'"] = { limits = { conections = 1 } },
    ["did you mean 'require_client_cert'"] = {
      tls = { cert = "/c", key = "/k", require_client_certs = true },
    },
    ["a list"] = { users = { a = 1 } },
    ["more than 8"] = { listen = { "/1", "/2", "/3", "/4", "/5", "/6", "/7", "/8", "/9" } },
    ["control character"] = { root = "/a\nb" },
    ["UTF%-8"] = { root = "/\xff" },
  }) do
    it("refuses with " .. text, function()
      assert.matches(text, refused(value))
    end)
  end
end)
