--- Adapter glue for OpenAI-compatible chat completions, streamed and whole.
--
-- Runs in a sandboxed state without files or network. It turns a turn of the session into a request
-- body, and the bytes of an answer into text, tool calls and usage. It is strict: an answer that
-- contradicts itself, or that ends before it says that it is over, is an error and never a result.
-- C validates again whatever is returned here.
--
-- A failed operation returns nil, a message and a code. Once failed, an answer stays failed.

local M = {}

-- Bounds. An answer of a model with the largest output today has under 1 MiB.
local MAX_LINE = 1024 * 1024 -- one line of a stream
local MAX_EVENT = 1024 * 1024 -- the data lines of one event together
local MAX_BODY = 8 * 1024 * 1024 -- everything of one answer
local MAX_TEXT = 512 * 1024 -- of an answer
local MAX_ARGUMENTS = 256 * 1024 -- of one tool call; what is beyond is not kept, and C refuses the call
local MAX_CALLS = 128 -- of one answer
local MAX_ERROR_BODY = 64 * 1024 -- of an answer that is an error; the rest is dropped
local MAX_MESSAGE = 300 -- what is quoted of a provider
local MAX_COUNT = 1 << 40 -- tokens
-- A token is hardly ever less than two bytes; used where a provider does not say.
local BYTES_PER_TOKEN = 2

local INVALID = "PROVIDER_INVALID_RESPONSE"
local STATUS = "PROVIDER_STATUS"
local TRUNCATED = "PROVIDER_TRUNCATED"
local LIMIT = "LIMIT_EXCEEDED"

local request_bytes = 0
local answer -- the answer being read

-- ---- small helpers ----

--- Text that may be shown: one line, no control characters, bounded, whole UTF-8 sequences.
local function quoted(text)
  if type(text) ~= "string" then
    return nil
  end
  text = text:sub(1, MAX_MESSAGE + 4):gsub("[%c\127]", " ")
  if #text > MAX_MESSAGE then
    local cut = MAX_MESSAGE
    while cut > 0 and (text:byte(cut + 1) or 0) & 0xC0 == 0x80 do
      cut = cut - 1
    end
    text = text:sub(1, cut)
    -- not half a word: of a key only the whole is recognised and redacted
    text = (text:match("^(.*%s)%S*$") or text) .. "..."
  end
  return "'" .. text .. "'"
end

local function absent(value)
  return value == nil or value == json.null
end

local function is_object(value)
  return type(value) == "table" and value ~= json.null
end

--- The number of elements of a list, or nil if the value is not one.
local function list_size(value)
  if not is_object(value) then
    return nil
  end
  local n = 0
  for key in pairs(value) do
    if type(key) ~= "number" then
      return nil
    end
    n = n + 1
  end
  return n == #value and n or nil
end

--- A count of tokens as an integer, or nil.
local function count(value)
  if type(value) ~= "number" or value < 0 or value > MAX_COUNT then
    return nil
  end
  return math.tointeger(value)
end

local function fail(state, message, code)
  if not state.failure then
    state.failure = { message = message, code = code or INVALID }
    state.line, state.data, state.body = {}, {}, {}
  end
  return nil, state.failure.message, state.failure.code
end

-- ---- request ----

--- The name of a call as every provider takes it back. Only a name that is no tool's is changed.
local function plain_name(name)
  return (name:gsub("[^%w_-]", "_"):sub(1, 64))
end

local function build_message(m)
  if m.role == "assistant" then
    local out = { role = "assistant", content = m.content }
    local calls = m.toolCalls
    if not absent(calls) and #calls > 0 then
      local list = {}
      for i, call in ipairs(calls) do
        list[i] = {
          id = call.id,
          type = "function",
          ["function"] = { name = plain_name(call.name), arguments = call.arguments },
        }
      end
      out.tool_calls = json.array(list)
      if absent(m.content) or m.content == "" then
        out.content = json.null
      end
    end
    return out
  elseif m.role == "tool" then
    return { role = "tool", tool_call_id = m.callId, content = m.content }
  elseif m.role == "system" or m.role == "user" then
    return { role = m.role, content = m.content }
  end
  return nil
end

--- OpenAI's newer models refuse `max_tokens`; most other servers know nothing else.
local function max_tokens_key(model)
  if model:find("^o%d") or model:find("^gpt%-[5-9]") then
    return "max_completion_tokens"
  end
  return "max_tokens"
end

--- Build the request of a turn.
---@param turn table {model, system?, messages, tools?, maxTokens, stream}
---@return table|nil request {path, content_type, body}
---@return string? message
---@return string? code
function M.build(turn)
  local messages = {}
  if not absent(turn.system) and turn.system ~= "" then
    messages[1] = { role = "system", content = turn.system }
  end
  for i, m in ipairs(turn.messages) do
    local message = build_message(m)
    if not message then
      return nil, ("message %d has a role that the adapter does not know"):format(i), "INTERNAL_ERROR"
    end
    messages[#messages + 1] = message
  end
  local body = { model = turn.model, messages = json.array(messages) }
  body[max_tokens_key(turn.model)] = turn.maxTokens
  if not absent(turn.tools) and #turn.tools > 0 then
    local tools = {}
    for i, tool in ipairs(turn.tools) do
      tools[i] = {
        type = "function",
        ["function"] = { name = tool.name, description = tool.description, parameters = tool.schema },
      }
    end
    body.tools = json.array(tools)
  end
  if turn.stream == true then
    body.stream = true
    body.stream_options = { include_usage = true }
  end
  local text = json.encode(body)
  request_bytes = #text
  return { path = "/chat/completions", content_type = "application/json", body = text }
end

-- ---- what an answer says, whichever way it came ----

local function new_answer(status, content_type)
  return {
    status = status,
    stream = content_type:lower():find("text/event-stream", 1, true) == 1,
    size = 0, -- bytes of the body
    body = {}, -- of an answer that is not streamed
    line = {}, -- pieces of the line that has not ended
    line_size = 0,
    data = {}, -- data lines of the event that has not ended
    data_size = 0,
    started = false, -- a byte was seen
    skip_lf = false, -- the last line ended with CR; an LF belongs to it
    done = false, -- [DONE] was seen
    text = {},
    text_size = 0,
    calls = {},
    ids = {},
  }
end

local function take_text(state, text)
  state.text_size = state.text_size + #text
  if state.text_size > MAX_TEXT then
    return fail(state, "the provider's answer has more than 512 KiB of text; it was not used", LIMIT)
  end
  state.text[#state.text + 1] = text
  return text
end

local function take_usage(state, usage)
  local prompt, completion = count(usage.prompt_tokens), count(usage.completion_tokens)
  local total = absent(usage.total_tokens) and prompt and completion and prompt + completion
    or count(usage.total_tokens)
  if not prompt or not completion or not total then
    return fail(state, "the provider's usage is not made of token counts; the answer was not used")
  end
  if total ~= prompt + completion then
    return fail(
      state,
      ("the provider's usage contradicts itself (%d prompt + %d completion tokens are not %d); "
        .. "the answer was not used"):format(prompt, completion, total)
    )
  end
  state.usage = { promptTokens = prompt, completionTokens = completion, totalTokens = total }
  return true
end

local function take_call_start(state, call)
  if #state.calls >= MAX_CALLS then
    return fail(state, "the provider's answer has more than 128 tool calls; it was not used", LIMIT)
  end
  if not absent(call.type) and call.type ~= "function" then
    return fail(state, "the provider's answer calls a tool that is not a function; it was not used")
  end
  local f = call["function"]
  if not is_object(f) then
    return fail(state, "the provider's tool call has no 'function'; the answer was not used")
  end
  local id, name = call.id, f.name
  if type(id) ~= "string" or #id == 0 or #id > 256 or id:find("[%c\127]") then
    return fail(state, "the provider's tool call has no usable id; the answer was not used")
  end
  -- any text will do: a name that is no tool's is for the model to correct
  if type(name) ~= "string" then
    return fail(state, "the provider's tool call has no usable name; the answer was not used")
  end
  if state.ids[id] then
    return fail(state, "the provider's answer has two tool calls with one id; it was not used")
  end
  state.ids[id] = true
  local entry = { id = id, name = name, arguments = {}, size = 0 }
  state.calls[#state.calls + 1] = entry
  return entry
end

--- Keeps the text as it is: whether it is JSON, and small enough, is between C and the model.
local function take_arguments(state, entry, text)
  if absent(text) then
    return true
  end
  if type(text) ~= "string" then
    return fail(state, "the provider's tool call has arguments that are no text; the answer was not used")
  end
  if entry.size <= MAX_ARGUMENTS then
    entry.arguments[#entry.arguments + 1] = text
  end
  entry.size = entry.size + #text
  return true
end

local FINISH = { stop = "stop", tool_calls = "tool_calls", length = "length" }

local function take_finish(state, reason)
  if absent(reason) then
    return true
  end
  if state.finish then
    return fail(state, "the provider's answer finishes twice; it was not used")
  end
  if reason == "content_filter" then
    return fail(state, "the provider's content filter cut the answer; it was not used")
  end
  if reason == "function_call" then
    return fail(state, "the provider's answer uses the legacy 'function_call'; it was not used")
  end
  state.finish = type(reason) == "string" and FINISH[reason] or nil
  if not state.finish then
    return fail(state, "the provider's answer has an unknown finish reason; it was not used")
  end
  return true
end

--- The single choice of a chunk or an answer; false if the list is empty.
local function only_choice(state, value)
  local n = list_size(value.choices)
  if not n then
    return fail(state, "the provider's answer has no list of choices; it was not used")
  end
  if n == 0 then
    return false
  end
  local choice = value.choices[1]
  if n > 1 or not is_object(choice) or not (absent(choice.index) or choice.index == 0) then
    return fail(state, "the provider's answer has more than one choice; it was not used")
  end
  return choice
end

--- What chunks and whole answers share: errors inside, model, usage. False after a failure.
local function take_common(state, value)
  if not is_object(value) then
    fail(state, "the provider's answer is not a JSON object; it was not used")
    return false
  end
  if not absent(value.error) then
    local e = value.error
    local text = quoted(is_object(e) and e.message or e) or "no message"
    fail(state, "the provider reported an error in its answer: " .. text, STATUS)
    return false
  end
  if type(value.model) == "string" and #value.model <= 256 then
    state.model = state.model or value.model
  end
  if not absent(value.usage) then
    if not is_object(value.usage) then
      fail(state, "the provider's usage is not an object; the answer was not used")
      return false
    end
    return take_usage(state, value.usage) ~= nil
  end
  return true
end

--- Checks of a message or a delta that do not depend on which it is.
local function check_part(state, part)
  if not absent(part.function_call) then
    return fail(state, "the provider's answer uses the legacy 'function_call'; it was not used")
  end
  if not absent(part.refusal) and part.refusal ~= "" then
    return fail(state, "the model refused: " .. (quoted(part.refusal) or "no message"))
  end
  if not absent(part.content) and type(part.content) ~= "string" then
    return fail(state, "the provider's answer has content that is no text; it was not used")
  end
  if not absent(part.tool_calls) and not list_size(part.tool_calls) then
    return fail(state, "the provider's tool calls are not a list; the answer was not used")
  end
  return true
end

-- ---- streamed ----

local function stream_call(state, call)
  local index = is_object(call) and count(call.index) or nil
  if not index or index > #state.calls then
    return fail(state, "the provider's tool call has no usable index; the answer was not used")
  end
  local entry = state.calls[index + 1]
  if not entry then
    entry = take_call_start(state, call)
    if not entry then
      return nil
    end
    return take_arguments(state, entry, call["function"].arguments)
  end
  local f = call["function"]
  if (not absent(call.id) and call.id ~= "" and call.id ~= entry.id) or not is_object(f) then
    return fail(state, "the provider's tool call changes its id; the answer was not used")
  end
  if not absent(f.name) and f.name ~= "" and f.name ~= entry.name then
    return fail(state, "the provider's tool call changes its name; the answer was not used")
  end
  return take_arguments(state, entry, f.arguments)
end

--- One chunk; returns its text.
local function stream_chunk(state, value)
  if not take_common(state, value) then
    return nil
  end
  local choice = only_choice(state, value)
  if choice == nil then
    return nil
  elseif choice == false then
    return ""
  end
  local delta = choice.delta
  if absent(delta) then
    delta = {}
  end
  if not is_object(delta) then
    return fail(state, "the provider's chunk has a delta that is no object; the answer was not used")
  end
  if not check_part(state, delta) then
    return nil
  end
  local text = absent(delta.content) and "" or delta.content
  local calls = absent(delta.tool_calls) and {} or delta.tool_calls
  if state.finish and (text ~= "" or #calls > 0) then
    return fail(state, "the provider's answer goes on behind its finish reason; it was not used")
  end
  if text ~= "" and not take_text(state, text) then
    return nil
  end
  for _, call in ipairs(calls) do
    if not stream_call(state, call) then
      return nil
    end
  end
  if not take_finish(state, choice.finish_reason) then
    return nil
  end
  return text
end

--- The event that just ended; returns its text.
local function stream_event(state)
  local data = table.concat(state.data, "\n")
  state.data, state.data_size = {}, 0
  if state.done then
    return fail(state, "the provider's stream goes on behind '[DONE]'; the answer was not used")
  end
  if data == "[DONE]" then
    state.done = true
    return ""
  end
  local value, message = json.decode(data)
  if value == nil then
    return fail(state, "the provider's stream holds an event that is not JSON (" .. (quoted(message) or "?")
      .. "); the answer was not used")
  end
  return stream_chunk(state, value)
end

--- One line without its end; returns text.
local function stream_line(state, line)
  if line == "" then
    if #state.data == 0 then
      return ""
    end
    return stream_event(state)
  end
  local first = line:sub(1, 1)
  if first == ":" then
    return "" -- a comment, sent to keep the connection alive
  end
  local field, value = line, ""
  local colon = line:find(":", 1, true)
  if colon then
    field, value = line:sub(1, colon - 1), line:sub(colon + 1)
    if value:sub(1, 1) == " " then
      value = value:sub(2)
    end
  end
  if field == "data" then
    state.data_size = state.data_size + #value + 1
    if state.data_size > MAX_EVENT then
      return fail(state, "the provider's stream has an event of more than 1 MiB; it was not used", LIMIT)
    end
    state.data[#state.data + 1] = value
    return ""
  elseif field == "event" or field == "id" or field == "retry" then
    return ""
  end
  return fail(state, "the provider's stream holds a line that is no part of one; the answer was not used")
end

--- Keep a piece of a line that has not ended. False if it is too long.
local function keep_line(state, piece)
  state.line_size = state.line_size + #piece
  if state.line_size > MAX_LINE then
    fail(state, "the provider's stream has a line of more than 1 MiB; it was not used", LIMIT)
    return false
  end
  if piece ~= "" then
    state.line[#state.line + 1] = piece
  end
  return true
end

local function take_line(state)
  local line = table.concat(state.line)
  state.line, state.line_size = {}, 0
  if not state.started then
    state.started = true
    if line:sub(1, 3) == "\xEF\xBB\xBF" then
      line = line:sub(4)
    end
  end
  return line
end

--- The position of the next CR or LF at or behind `at`, or nil.
local function line_end(bytes, at)
  local lf = bytes:find("\n", at, true)
  local cr = bytes:find("\r", at, true)
  if lf and cr then
    return lf < cr and lf or cr
  end
  return lf or cr
end

local function feed_stream(state, bytes)
  local out, at = {}, 1
  if state.skip_lf and #bytes > 0 then
    state.skip_lf = false
    if bytes:byte(1) == 10 then
      at = 2
    end
  end
  while at <= #bytes do
    local stop = line_end(bytes, at)
    if not keep_line(state, bytes:sub(at, (stop or #bytes + 1) - 1)) then
      break
    end
    if not stop then
      break
    end
    at = stop + 1
    if bytes:byte(stop) == 13 then
      if stop == #bytes then
        state.skip_lf = true
      elseif bytes:byte(at) == 10 then
        at = at + 1
      end
    end
    local text = stream_line(state, take_line(state))
    if not text then
      break
    end
    if text ~= "" then
      out[#out + 1] = text
    end
  end
  if state.failure then
    return nil, state.failure.message, state.failure.code
  end
  return table.concat(out)
end

-- ---- whole ----

local function read_whole(state)
  local value, message = json.decode(table.concat(state.body))
  if value == nil then
    local why = quoted(message) or "?"
    return fail(state, "the provider's answer is not JSON (" .. why .. "); it was not used")
  end
  if not take_common(state, value) then
    return nil
  end
  local choice = only_choice(state, value)
  if choice == nil then
    return nil
  end
  local part = choice and choice.message
  if not is_object(part) then
    return fail(state, "the provider's answer has no message; it was not used")
  end
  if not check_part(state, part) then
    return nil
  end
  if not absent(part.content) and part.content ~= "" and not take_text(state, part.content) then
    return nil
  end
  for _, call in ipairs(absent(part.tool_calls) and {} or part.tool_calls) do
    local entry = take_call_start(state, is_object(call) and call or {})
    if not entry or not take_arguments(state, entry, call["function"].arguments) then
      return nil
    end
  end
  state.done = true
  return take_finish(state, choice.finish_reason)
end

-- ---- the end of an answer ----

local function status_error(state)
  local text = table.concat(state.body)
  local value = json.decode(text)
  local e = is_object(value) and value.error
  local message = is_object(e) and e.message or e
  if type(message) ~= "string" then
    message = is_object(value) and value.message or nil
  end
  local said = quoted(message)
  return fail(
    state,
    ("the provider answered with status %d%s; the turn did not happen"):format(
      state.status,
      said and (": " .. said) or ""
    ),
    STATUS
  )
end

local function estimate(state)
  local bytes = state.text_size
  for _, call in ipairs(state.calls) do
    bytes = bytes + call.size + #call.name
  end
  local prompt = (request_bytes + BYTES_PER_TOKEN - 1) // BYTES_PER_TOKEN
  local completion = (bytes + BYTES_PER_TOKEN - 1) // BYTES_PER_TOKEN
  if completion == 0 then
    completion = 1
  end
  return { promptTokens = prompt, completionTokens = completion, totalTokens = prompt + completion }
end

local function finish_calls(state)
  local calls = {}
  for i, entry in ipairs(state.calls) do
    calls[i] = { id = entry.id, name = entry.name, arguments = table.concat(entry.arguments) }
  end
  if (#calls > 0) ~= (state.finish == "tool_calls") then
    return fail(
      state,
      ("the provider's answer has %d tool calls and finishes with '%s'; it was not used"):format(
        #calls,
        state.finish
      )
    )
  end
  return calls
end

--- An event stream may end without the last line's end; only "[DONE]" is taken from such a rest,
--- because nothing can be missing behind it.
local function close_stream(state)
  if #state.line > 0 then
    local line = take_line(state)
    if line:find("^data: ?%[DONE%]$") then
      stream_line(state, line)
    end
  end
  if #state.data == 1 and state.data[1] == "[DONE]" then
    stream_event(state)
  end
end

--- Start reading an answer.
---@param status integer the HTTP status
---@param content_type string
function M.head(status, content_type)
  answer = new_answer(status, content_type or "")
  return true
end

--- Take bytes of the body, cut anywhere.
---@param bytes string
---@return string|nil delta text for people, "" if none
---@return string? message
---@return string? code
function M.feed(bytes)
  local state = answer
  if not state then
    return nil, "a body came before its head", "INTERNAL_ERROR"
  end
  if state.failure then
    return nil, state.failure.message, state.failure.code
  end
  state.size = state.size + #bytes
  if state.status < 200 or state.status > 299 then
    if state.size <= MAX_ERROR_BODY then
      state.body[#state.body + 1] = bytes
    end
    return ""
  end
  if state.size > MAX_BODY then
    return fail(state, "the provider's answer is larger than 8 MiB; it was not used", LIMIT)
  end
  if state.stream then
    return feed_stream(state, bytes)
  end
  state.body[#state.body + 1] = bytes
  return ""
end

--- The body is complete.
---@return table|nil response {text, toolCalls, finishReason, usage, usageEstimated?, model}
---@return string? message
---@return string? code
function M.finish()
  local state = answer
  if not state then
    return nil, "an end came before its head", "INTERNAL_ERROR"
  end
  answer = nil
  if not state.failure then
    if state.status < 200 or state.status > 299 then
      status_error(state)
    elseif state.stream then
      close_stream(state)
    else
      read_whole(state)
    end
  end
  if not state.failure and not state.done then
    fail(state, "the provider's stream ended before '[DONE]'; the answer was not used", TRUNCATED)
  end
  if not state.failure and not state.finish then
    fail(state, "the provider's answer has no finish reason; it was not used", TRUNCATED)
  end
  local calls = not state.failure and finish_calls(state)
  if state.failure then
    return nil, state.failure.message, state.failure.code
  end
  return {
    text = table.concat(state.text),
    toolCalls = json.array(calls),
    finishReason = state.finish,
    usage = state.usage or estimate(state),
    usageEstimated = not state.usage or nil,
    model = state.model or "",
  }
end

return M
