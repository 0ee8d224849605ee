-- The adapter for OpenAI-compatible chat completions, loaded the way the sandbox loads it: as text,
-- with no globals but a few libraries and `json`.
local here = debug.getinfo(1, "S").source:match("^@(.*)/[^/]*$")
local json = dofile(here .. "/json_shim.lua")

local function load_adapter()
  local env = {
    assert = assert, error = error, ipairs = ipairs, next = next, pairs = pairs, pcall = pcall,
    select = select, tonumber = tonumber, tostring = tostring, type = type, rawequal = rawequal,
    string = string, table = table, math = math, json = json,
  }
  setmetatable(env, {
    __index = function(_, key)
      error("reads the global '" .. tostring(key) .. "'", 2)
    end,
    __newindex = function(_, key)
      error("writes the global '" .. tostring(key) .. "'", 2)
    end,
  })
  return assert(loadfile(here .. "/../../lua/bridle/adapter/openai.lua", "t", env))()
end

local SSE = "text/event-stream"
local JSON = "application/json"

--- Play a whole answer in pieces: the result, message, code, and the text that was shown.
local function play(pieces, content_type, status)
  local adapter = load_adapter()
  adapter.head(status or 200, content_type or SSE)
  local shown = {}
  for _, piece in ipairs(pieces) do
    local text, message, code = adapter.feed(piece)
    if text == nil then
      local again, message2, code2 = adapter.finish()
      assert.is_nil(again)
      assert.are.equal(message, message2)
      assert.are.equal(code, code2)
      return nil, message, code, table.concat(shown)
    end
    shown[#shown + 1] = text
  end
  local result, message, code = adapter.finish()
  return result, message, code, table.concat(shown)
end

local function chunk(delta, finish, more)
  local value = {
    id = "c1", object = "chat.completion.chunk", created = 1, model = "m-1",
    choices = json.array({ { index = 0, delta = delta, finish_reason = finish or json.null } }),
  }
  for key, v in pairs(more or {}) do
    value[key] = v
  end
  return "data: " .. json.encode(value) .. "\n\n"
end

local function usage(prompt, completion, total)
  return 'data: {"model":"m-1","choices":[],"usage":{"prompt_tokens":' .. prompt .. ',"completion_tokens":'
    .. completion .. ',"total_tokens":' .. total .. "}}\n\n"
end

local DONE = "data: [DONE]\n\n"

local function call_delta(index, id, name, arguments)
  local f = { name = name, arguments = arguments }
  local type_name = id and "function"
  return { tool_calls = json.array({ { index = index, id = id, type = type_name, ["function"] = f } }) }
end

-- As a real server sent it: role first, text in pieces with characters of 2, 3 and 4 bytes, two
-- tool calls whose arguments come in pieces, comments, CR LF in between, usage, [DONE].
local RECORDED = table.concat({
  ": keep-alive\n\n",
  chunk({ role = "assistant", content = "" }),
  chunk({ content = "Größe " }),
  "event: message\r\nid: 7\r\ndata: " .. json.encode({
    model = "m-1", choices = json.array({ { index = 0, delta = { content = "→ 😀 " } } }),
  }) .. "\r\n\r\n",
  ":\n",
  chunk({ content = "ok\n" }),
  chunk(call_delta(0, "call_a", "fs_read", "")),
  chunk(call_delta(0, nil, nil, '{"path":')),
  chunk(call_delta(0, nil, nil, '"ä.lua"}')),
  chunk(call_delta(1, "call_b", "fs_list", "{}")),
  chunk({}, "tool_calls"),
  usage(11, 7, 18),
  DONE,
})

local EXPECTED = {
  text = "Größe → 😀 ok\n",
  toolCalls = {
    { id = "call_a", name = "fs_read", arguments = '{"path":"ä.lua"}' },
    { id = "call_b", name = "fs_list", arguments = "{}" },
  },
  finishReason = "tool_calls",
  usage = { promptTokens = 11, completionTokens = 7, totalTokens = 18 },
  model = "m-1",
}

local function plain(value)
  if type(value) ~= "table" then
    return value
  end
  local out = {}
  for key, v in pairs(value) do
    out[key] = plain(v)
  end
  return out
end

local function refused(pieces, text, code, content_type, status)
  local result, message, got = play(type(pieces) == "table" and pieces or { pieces }, content_type, status)
  assert.is_nil(result)
  assert.is_truthy(message:find(text, 1, true), message)
  assert.are.equal(code or "PROVIDER_INVALID_RESPONSE", got)
end

describe("openai adapter: request", function()
  local turn = {
    model = "m-1",
    system = "be brief",
    messages = {
      { role = "user", content = "hello" },
      {
        role = "assistant", content = "",
        toolCalls = { { id = "c1", name = "fs_list", arguments = "{}" } },
      },
      { role = "tool", callId = "c1", name = "fs_list", content = '{"ok":true}' },
      { role = "assistant", content = "done", toolCalls = json.array({}) },
    },
    tools = {
      { name = "fs_list", description = "lists", schema = { type = "object", required = json.array({}) } },
    },
    maxTokens = 50,
    stream = true,
  }

  it("writes messages, tools, limits and stream options", function()
    local request = load_adapter().build(turn)
    assert.are.equal("/chat/completions", request.path)
    assert.are.equal("application/json", request.content_type)
    local body = json.decode(request.body)
    assert.are.same({
      model = "m-1",
      max_tokens = 50,
      stream = true,
      stream_options = { include_usage = true },
      messages = {
        { role = "system", content = "be brief" },
        { role = "user", content = "hello" },
        {
          role = "assistant", content = json.null,
          tool_calls = {
            { id = "c1", type = "function", ["function"] = { name = "fs_list", arguments = "{}" } },
          },
        },
        { role = "tool", tool_call_id = "c1", content = '{"ok":true}' },
        { role = "assistant", content = "done" },
      },
      tools = {
        {
          type = "function",
          ["function"] = {
            name = "fs_list", description = "lists", parameters = { type = "object", required = {} },
          },
        },
      },
    }, plain(body))
    assert.is_truthy(request.body:find('"required":[]', 1, true))
  end)

  it("leaves out what is not asked for, and knows what newer models call their limit", function()
    local body = json.decode(load_adapter().build({
      model = "gpt-5-mini", messages = { { role = "user", content = "x" } }, tools = {}, maxTokens = 9,
      stream = false,
    }).body)
    assert.are.same({
      model = "gpt-5-mini", max_completion_tokens = 9, messages = { { role = "user", content = "x" } },
    }, plain(body))
  end)

  it("gives a call back under a name that every provider takes", function()
    local function name_of(name)
      local calls = { { id = "c1", name = name, arguments = "{}" } }
      local messages = { { role = "assistant", content = "", toolCalls = calls } }
      local request = load_adapter().build({ model = "m", messages = messages, maxTokens = 1 })
      return json.decode(request.body).messages[1].tool_calls[1]["function"].name
    end
    assert.are.equal("process_exec", name_of("process_exec"))
    assert.are.equal("fs_x1bread", name_of("fs\\x1bread"))
    assert.are.equal(("n"):rep(64), name_of(("n"):rep(65)))
  end)

  it("refuses a role that it does not know", function()
    local turn_of_root = { model = "m", messages = { { role = "root" } }, maxTokens = 1 }
    local request, message, code = load_adapter().build(turn_of_root)
    assert.is_nil(request)
    assert.is_truthy(message:find("message 1", 1, true))
    assert.are.equal("INTERNAL_ERROR", code)
  end)
end)

describe("openai adapter: streamed answer", function()
  it("reads a recorded stream", function()
    local result, message, _, shown = play({ RECORDED })
    assert.is_nil(message)
    assert.are.same(EXPECTED, plain(result))
    assert.are.equal(EXPECTED.text, shown)
  end)

  it("gives the same whatever the borders of the pieces are", function()
    for cut = 1, #RECORDED - 1 do
      local result, _, _, shown = play({ RECORDED:sub(1, cut), RECORDED:sub(cut + 1) })
      assert.are.same(EXPECTED, plain(result))
      assert.are.equal(EXPECTED.text, shown)
    end
    local bytes = {}
    for i = 1, #RECORDED do
      bytes[i] = RECORDED:sub(i, i)
    end
    assert.are.same(EXPECTED, plain((play(bytes))))
  end)

  it("gives the same with CR LF, and with CR alone", function()
    for _, ending in ipairs({ "\r\n", "\r" }) do
      local other = RECORDED:gsub("\r\n", "\n"):gsub("\n", ending)
      for cut = 1, #other - 1, 3 do
        assert.are.same(EXPECTED, plain((play({ other:sub(1, cut), other:sub(cut + 1) }))))
      end
    end
  end)

  it("never makes something else of a stream that is cut", function()
    local whole, failed = 0, 0
    for cut = 0, #RECORDED - 1 do
      local result, message, code = play({ RECORDED:sub(1, cut) })
      if result then
        whole = whole + 1
        assert.are.same(EXPECTED, plain(result))
      else
        failed = failed + 1
        assert.are.equal("PROVIDER_TRUNCATED", code, message)
      end
    end
    -- only the two line ends behind [DONE] may be missing
    assert.are.equal(2, whole)
    assert.are.equal(#RECORDED - 2, failed)
  end)

  it("reads text alone, with 'stop' and with 'length'", function()
    for _, reason in ipairs({ "stop", "length" }) do
      local text = chunk({ content = "a" }) .. chunk({ content = "b" }, reason)
      local result = play({ text .. usage(1, 2, 3) .. DONE })
      assert.are.equal("ab", result.text)
      assert.are.equal(reason, result.finishReason)
      assert.are.equal("[]", json.encode(result.toolCalls))
    end
  end)

  it("estimates usage that does not come, and says so", function()
    local adapter = load_adapter()
    local messages = { { role = "user", content = "x" } }
    local request = adapter.build({ model = "m", messages = messages, maxTokens = 9 })
    adapter.head(200, SSE)
    adapter.feed(chunk({ content = "12345" }, "stop") .. DONE)
    local result = adapter.finish()
    assert.is_true(result.usageEstimated)
    assert.are.same({
      promptTokens = (#request.body + 1) // 2,
      completionTokens = 3,
      totalTokens = (#request.body + 1) // 2 + 3,
    }, result.usage)
  end)

  it("takes usage from where it comes, the last one counting", function()
    local first = { usage = { prompt_tokens = 3, completion_tokens = 1, total_tokens = 4 } }
    local last = { usage = { prompt_tokens = 3, completion_tokens = 2 } }
    local result = play({ chunk({ content = "a" }, nil, first) .. chunk({}, "stop", last) .. DONE })
    assert.are.same({ promptTokens = 3, completionTokens = 2, totalTokens = 5 }, result.usage)
    assert.is_nil(result.usageEstimated)
  end)

  it("ignores what it does not need", function()
    local result = play({
      "\xEF\xBB\xBFretry: 1\n",
      chunk({ content = json.null, reasoning_content = "hm", refusal = json.null }),
      chunk({ content = "a" }, "stop", { service_tier = "x", usage = json.null, error = json.null }) .. DONE,
    })
    assert.are.equal("a", result.text)
  end)

  it("starts afresh with every head", function()
    local adapter = load_adapter()
    adapter.head(200, SSE)
    assert.is_nil((adapter.feed("data: {\n\n")))
    adapter.head(200, SSE)
    assert.are.equal("a", adapter.feed(chunk({ content = "a" }, "stop") .. DONE))
    assert.are.equal("a", adapter.finish().text)
    assert.is_nil((adapter.finish()))
    assert.is_nil((adapter.feed("x")))
  end)
end)

describe("openai adapter: refuses", function()
  local START = chunk({ role = "assistant", content = "" })

  it("garbage", function()
    refused("\x7fELF\x01\x02\n\n", "no part of one")
    refused("<html>\n", "no part of one")
    refused("data: {]}\n\n", "not JSON")
    refused("data: {\"a\":1,\"a\":2}\n\n", "not JSON")
    refused("data: {\"choices\":[]}\ndata: x\n\n", "not JSON")
    refused("data: \xc3(\n\n", "not JSON")
    refused("data: [1]\n\n", "no list of choices")
    refused("data: 5\n\n", "not a JSON object")
    refused("data: null\n\n", "not a JSON object")
    refused("data: {\"choices\":{\"a\":1}}\n\n", "no list of choices")
    refused('data: {"choices":[{"index":0,"delta":3}]}\n\n', "delta that is no object")
    refused(chunk({ content = json.array({ "a" }) }), "content that is no text")
    refused("", "before '[DONE]'", "PROVIDER_TRUNCATED")
    refused("not json", "not JSON", nil, JSON)
    refused("", "not JSON", nil, JSON)
    refused("[]", "no list of choices", nil, JSON)
  end)

  it("the legacy function_call", function()
    refused(START .. chunk({ function_call = { name = "a", arguments = "{}" } }), "legacy")
    refused(START .. chunk({}, "function_call"), "legacy")
  end)

  it("more than one choice", function()
    refused('data: {"choices":[{"index":0,"delta":{}},{"index":1,"delta":{}}]}\n\n', "more than one choice")
    refused('data: {"choices":[{"index":1,"delta":{}}]}\n\n', "more than one choice")
  end)

  it("malformed tool calls", function()
    local function call(arguments)
      local calls = chunk(call_delta(0, "c1", "fs_list", arguments)) .. chunk({}, "tool_calls")
      return START .. calls .. usage(1, 1, 2) .. DONE
    end
    assert.are.equal(' {"a":1}', play({ call(' {"a":1}') }).toolCalls[1].arguments) -- positive control
    refused(START .. chunk(call_delta(0, nil, "fs_list", "{}")), "no usable id")
    refused(START .. chunk(call_delta(0, "", "fs_list", "{}")), "no usable id")
    refused(START .. chunk(call_delta(0, "c1", nil, "{}")), "no usable name")
    refused(START .. chunk(call_delta(0, "c1", 7, "{}")), "no usable name")
    refused(START .. chunk(call_delta(0, "c\n1", "a", "{}")), "no usable id")
    refused(START .. chunk(call_delta(1, "c1", "a", "{}")), "no usable index")
    refused(START .. chunk(call_delta(nil, "c1", "a", "{}")), "no usable index")
    refused(START .. chunk(call_delta(0, "c1", "a", json.array({}))), "arguments that are no text")
    refused(START .. chunk({ tool_calls = { a = 1 } }), "not a list")
    local web = { index = 0, id = "a", type = "web" }
    refused(START .. chunk({ tool_calls = json.array({ web }) }), "not a function")
    local first = START .. chunk(call_delta(0, "c1", "a", ""))
    refused(first .. chunk(call_delta(0, "c2", nil, "{}")), "changes its id")
    refused(first .. chunk(call_delta(0, nil, "b", "{}")), "changes its name")
  end)

  it("no arguments and no name of a call: those are for the session to answer", function()
    local bad_arguments = {
      "", "{", '{"a":}', "[]", "[1]", "null", '"x"', "1", '{"a":1,"a":2}', "{}{}", "{} x", "\1\127 ä",
      '{"a":"\\u0000"}', ("["):rep(65) .. ("]"):rep(65),
    }
    for _, bad in ipairs(bad_arguments) do
      local calls = chunk(call_delta(0, "c1", "fs_list", bad)) .. chunk({}, "tool_calls")
      local result = play({ START .. calls .. usage(1, 1, 2) .. DONE })
      assert.are.equal(bad, result.toolCalls[1].arguments)
    end
    for _, name in ipairs({ "", "fs\27[2J", ("n"):rep(300), "ä" }) do
      local calls = chunk(call_delta(0, "c1", name, "{}")) .. chunk({}, "tool_calls")
      assert.are.equal(name, play({ START .. calls .. usage(1, 1, 2) .. DONE }).toolCalls[1].name)
    end
  end)

  it("two tool calls with one id", function()
    refused(START .. chunk(call_delta(0, "c1", "a", "{}")) .. chunk(call_delta(1, "c1", "b", "{}")), "one id")
  end)

  it("contradictory finish reasons", function()
    local call = chunk(call_delta(0, "c1", "a", "{}"))
    refused(START .. call .. chunk({}, "stop") .. DONE, "1 tool calls and finishes with 'stop'")
    refused(START .. call .. chunk({}, "length") .. DONE, "1 tool calls and finishes with 'length'")
    refused(START .. chunk({}, "tool_calls") .. DONE, "0 tool calls and finishes with 'tool_calls'")
    refused(START .. chunk({}, "stop") .. chunk({}, "stop"), "finishes twice")
    refused(START .. chunk({}, "stop") .. chunk({ content = "x" }), "behind its finish reason")
    refused(START .. chunk({}, "stop") .. call, "behind its finish reason")
    refused(START .. chunk({}, "content_filter"), "content filter")
    refused(START .. chunk({}, "because"), "unknown finish reason")
    refused(START .. chunk({}, 7), "unknown finish reason")
    refused(START .. usage(1, 1, 2) .. DONE, "no finish reason", "PROVIDER_TRUNCATED")
    refused(START .. chunk({}, "stop") .. DONE .. chunk({}), "behind '[DONE]'")
  end)

  it("usage that contradicts itself", function()
    refused(START .. chunk({}, "stop") .. usage(3, 4, 8) .. DONE, "3 prompt + 4 completion tokens are not 8")
    refused(START .. usage("-1", 4, 3), "not made of token counts")
    refused(START .. usage("1.5", 4, 5), "not made of token counts")
    refused(START .. usage('"1"', 4, 5), "not made of token counts")
    refused(START .. usage("1e300", 4, 5), "not made of token counts")
    refused('data: {"choices":[],"usage":7}\n\n', "usage is not an object")
  end)

  it("a stream without [DONE]", function()
    refused(START .. chunk({}, "stop") .. usage(1, 1, 2), "before '[DONE]'", "PROVIDER_TRUNCATED")
  end)

  it("errors in the middle of a stream", function()
    refused(START .. 'data: {"error":{"message":"over\\u001b[2Jloaded"}}\n\n',
      "reported an error in its answer: 'over [2Jloaded'", "PROVIDER_STATUS")
    refused(START .. 'data: {"error":"full"}\n\n', "'full'", "PROVIDER_STATUS")
  end)

  it("a refusal of the model", function()
    refused(START .. chunk({ refusal = "no" }), "the model refused: 'no'")
  end)

  it("every status that is not 2xx, with the provider's words, bounded and on one line", function()
    refused('{"error":{"message":"slow\\ndown"}}', "status 429: 'slow down'", "PROVIDER_STATUS", JSON, 429)
    refused('{"error":"plain"}', "status 500: 'plain'", "PROVIDER_STATUS", JSON, 500)
    refused('{"message":"other"}', "status 400: 'other'", "PROVIDER_STATUS", JSON, 400)
    refused("<html>", "status 502; the turn", "PROVIDER_STATUS", "text/html", 502)
    refused("", "status 307; the turn", "PROVIDER_STATUS", "", 307)
    refused(DONE, "status 401; the turn", "PROVIDER_STATUS", SSE, 401)
    local long = '{"error":{"message":"' .. ("ä"):rep(2000) .. '"}}'
    local _, message = play({ long }, JSON, 500)
    assert.is_truthy(message:find("ä...'", 1, true))
    assert.is_true(#message < 500)
    assert.is_truthy(utf8.len(message))
    -- half a key would not be recognised as one
    long = '{"error":{"message":"' .. ("a "):rep(145) .. 'sk-canary-4f1d2c8e77aa90b3"}}'
    _, message = play({ long }, JSON, 401)
    assert.is_truthy(message:find("a ...'", 1, true))
    assert.is_nil(message:find("sk%-can"))
    -- a body without end is not kept
    local piece = ("x"):rep(60000)
    refused({ piece, piece, piece }, "status 500; the turn", "PROVIDER_STATUS", JSON, 500)
  end)
end)

describe("openai adapter: limits", function()
  local function sized(n)
    return ("x"):rep(n)
  end

  it("text: 512 KiB", function()
    local pieces = {}
    for i = 1, 8 do
      pieces[i] = chunk({ content = sized(64 * 1024) })
    end
    local rest = chunk({}, "stop") .. usage(1, 1, 2) .. DONE
    pieces[9] = rest
    assert.are.equal(512 * 1024, #play(pieces).text)
    pieces[9], pieces[10] = chunk({ content = "x" }), rest
    refused(pieces, "512 KiB of text", "LIMIT_EXCEEDED")
  end)

  it("arguments of a call: what is kept is more than 256 KiB if they were", function()
    local function call(n)
      return {
        chunk(call_delta(0, "c1", "a", '{"a":"')), chunk(call_delta(0, nil, nil, sized(n - 8))),
        chunk(call_delta(0, nil, nil, '"}')), chunk({}, "tool_calls"), DONE,
      }
    end
    assert.are.equal(256 * 1024, #play(call(256 * 1024)).toolCalls[1].arguments)
    assert.are.equal(256 * 1024 + 1, #play(call(256 * 1024 + 1)).toolCalls[1].arguments)
    local pieces = { chunk(call_delta(0, "c1", "a", "")) }
    for i = 2, 21 do
      pieces[i] = chunk(call_delta(0, nil, nil, sized(128 * 1024)))
    end
    pieces[22] = chunk({}, "tool_calls") .. DONE
    assert.are.equal(384 * 1024, #play(pieces).toolCalls[1].arguments)
  end)

  it("calls of an answer: 128", function()
    local function calls(n)
      local pieces = {}
      for i = 1, n do
        pieces[i] = chunk(call_delta(i - 1, "c" .. i, "a", "{}"))
      end
      pieces[n + 1] = chunk({}, "tool_calls") .. DONE
      return pieces
    end
    assert.are.equal(128, #play(calls(128)).toolCalls)
    refused(calls(129), "more than 128 tool calls", "LIMIT_EXCEEDED")
  end)

  it("one line: 1 MiB, however it arrives", function()
    local comment = ":" .. sized(1024 * 1024 - 1)
    local rest = "\n" .. chunk({ content = "a" }, "stop") .. DONE
    assert.are.equal("a", play({ comment, rest }).text)
    refused({ comment, "x", rest }, "line of more than 1 MiB", "LIMIT_EXCEEDED")
    refused({ comment .. "x" .. rest }, "line of more than 1 MiB", "LIMIT_EXCEEDED")
  end)

  it("one event: 1 MiB over its lines", function()
    local line = "data: " .. sized(512 * 1024 - 1) .. "\n"
    refused({ line, line, "\n" }, "not JSON")
    refused({ line, line, "data:\n" }, "event of more than 1 MiB", "LIMIT_EXCEEDED")
  end)

  it("everything: 8 MiB", function()
    local comments = {}
    for i = 1, 128 do
      comments[i] = ":" .. sized(64 * 1024 - 2) .. "\n"
    end
    local rest = chunk({ content = "a" }, "stop") .. DONE
    comments[128] = ":" .. sized(64 * 1024 - 2 - #rest) .. "\n"
    comments[129] = rest
    assert.are.equal("a", play(comments).text)
    comments[130] = "\n"
    refused(comments, "larger than 8 MiB", "LIMIT_EXCEEDED")
  end)
end)

describe("openai adapter: whole answer", function()
  local function whole(message, finish, more)
    local value = {
      id = "c1", object = "chat.completion", model = "m-1",
      choices = json.array({ { index = 0, message = message, finish_reason = finish } }),
      usage = { prompt_tokens = 2, completion_tokens = 3, total_tokens = 5 },
    }
    for key, v in pairs(more or {}) do
      value[key] = v
    end
    return json.encode(value)
  end
  local function call(id, arguments)
    return { id = id, type = "function", ["function"] = { name = "fs_list", arguments = arguments } }
  end
  local calls = json.array({ call("c1", "{}") })
  local GOOD = whole({ role = "assistant", content = "hällo", tool_calls = calls }, "tool_calls")

  it("reads text and calls", function()
    for _, content_type in ipairs({ JSON, "application/json; charset=utf-8" }) do
      local result = play({ GOOD }, content_type)
      assert.are.same({
        text = "hällo",
        toolCalls = { { id = "c1", name = "fs_list", arguments = "{}" } },
        finishReason = "tool_calls",
        usage = { promptTokens = 2, completionTokens = 3, totalTokens = 5 },
        model = "m-1",
      }, plain(result))
    end
    local text = whole({ role = "assistant", content = "a", tool_calls = json.null }, "stop")
    local result = play({ text }, JSON)
    assert.are.equal("a", result.text)
  end)

  it("passes on the arguments of a call as they are", function()
    local message = { content = "a", tool_calls = json.array({ call("c1", '{"a"') }) }
    assert.are.equal('{"a"', play({ whole(message, "tool_calls") }, JSON).toolCalls[1].arguments)
  end)

  it("gives the same whatever the borders are, and an error wherever it is cut", function()
    for cut = 0, #GOOD - 1 do
      assert.are.equal("hällo", play({ GOOD:sub(1, cut), GOOD:sub(cut + 1) }, JSON).text)
      assert.is_nil((play({ GOOD:sub(1, cut) }, JSON)))
    end
  end)

  it("refuses what it refuses in a stream", function()
    local function bad(text, message, finish, more)
      refused(whole(message, finish, more), text, nil, JSON)
    end
    bad("arguments that are no text", { tool_calls = json.array({ call("c1", { a = 1 }) }) }, "tool_calls")
    bad("one id", { tool_calls = json.array({ call("c1", "{}"), call("c1", "{}") }) }, "tool_calls")
    bad("finishes with 'stop'", { tool_calls = json.array({ call("c1", "{}") }) }, "stop")
    bad("legacy", { function_call = { name = "a" } }, "function_call")
    bad("are not 9", { content = "a" }, "stop",
      { usage = { prompt_tokens = 2, completion_tokens = 3, total_tokens = 9 } })
    bad("no 'function'", { tool_calls = json.array({ { id = "c1" } }) }, "tool_calls")
    bad("no 'function'", { tool_calls = json.array({ "x" }) }, "tool_calls")
    bad("no message", { content = "a" }, "stop", { choices = json.array({}) })
    bad("more than one choice", {}, "stop", { choices = json.array({ { index = 0 }, { index = 1 } }) })
    refused(whole({ content = "a" }, json.null), "no finish reason", "PROVIDER_TRUNCATED", JSON)
    refused('{"error":{"message":"bad key"}}', "'bad key'", "PROVIDER_STATUS", JSON)
  end)
end)
