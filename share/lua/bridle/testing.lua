--- Specs for policies: what `require "bridle.testing"` is in a file that busted runs under Lua 5.4.
--- Nothing is decided here. Every bundle has a process `bridle policy test --serve`, which compiles
--- it as a run would and answers with the evaluator of a run; requests and answers are lines of JSON
--- on two pipes. Runs as its operator, in the operator's process, and trusts the spec.

local json = require "dkjson"
local busted = require "busted"

local testing = {}

---@class bridle.testing.bundle
---@field file string the bundle's file, "" for the one that is built in
local Bundle = {}
Bundle.__index = Bundle

local open = {} -- bundles by file, profile and manifest

local function here(level)
  local info = debug.getinfo(level + 1, "Sl")
  return info.source:match("^@(.*)$") or info.short_src, info.currentline
end

local function exists(path)
  local file <close> = io.open(path, "rb")
  return file ~= nil
end

local BARE = -100 -- a level: without a place in front

local function refuse(level, message, ...)
  error(message:format(...), level < 0 and 0 or level + 1)
end

local function quote(word)
  return "'" .. word:gsub("'", "'\\''") .. "'"
end

local function edits(a, b) -- of two short words
  local row = {}
  for j = 0, #b do row[j] = j end
  for i = 1, #a do
    local diagonal = row[0]
    row[0] = i
    for j = 1, #b do
      local cost = a:byte(i) == b:byte(j) and 0 or 1
      diagonal, row[j] = row[j], math.min(row[j] + 1, row[j - 1] + 1, diagonal + cost)
    end
  end
  return row[#b]
end

local function known(level, what, fields, names)
  for key in pairs(fields) do
    if not names[key] then
      local best, near = 4, nil
      for name in pairs(names) do
        local n = edits(tostring(key), tostring(name))
        if n < best then best, near = n, name end
      end
      refuse(level + 1, "%s does not know '%s'%s; nothing was decided", what, tostring(key),
        near and ("; did you mean '%s'?"):format(near) or "")
    end
  end
end

-- ---- the process that decides ----

--- The shell opens the named pipe before anything else and closes it behind bridle, so that nobody
--- waits for a program that could not be started; what is still written to it then, `cat` takes.
local function start(file, options)
  local dir = assert(io.popen("mktemp -d", "r"))
  local path = dir:read("l")
  dir:close()
  if not path then error("no directory for a pipe could be made; nothing was decided", 0) end
  local pipe = path .. "/answers"
  local words = { quote(os.getenv("BRIDLE") or "bridle"), "policy", "test", "--serve" }
  for _, name in ipairs { "profile", "manifest" } do
    if options[name] then words[#words + 1] = ("--%s=%s"):format(name, quote(options[name])) end
  end
  if file ~= "" then
    words[#words + 1] = "--"
    words[#words + 1] = quote(file)
  end
  local made = os.execute("mkfifo " .. quote(pipe))
  local to = made and io.popen(("exec >%s; %s; code=$?; exec >/dev/null; cat; exit $code")
    :format(quote(pipe), table.concat(words, " ")), "w")
  local from = to and io.open(pipe, "rb")
  os.remove(pipe)
  os.remove(path)
  if not from then error("no pipe to 'bridle policy test --serve'; nothing was decided", 0) end
  to:setvbuf("line")
  return to, from
end

local function exchange(self, request)
  self.to:write(request, "\n")
  local line = self.from:read("l")
  local said = line and json.decode(line)
  if type(said) ~= "table" then
    local ok, how, code = self.to:close()
    error(("'bridle policy test --serve' ended without an answer%s; nothing was decided"):format(
      ok and "" or (" (%s %s)"):format(tostring(how), tostring(code))), 0)
  end
  return said, line
end

--- Only the bundle under test is measured, and mutated.
local function under_test(file)
  return file == os.getenv("BRIDLE_POLICY_FILE")
end

local function note(self, line)
  local path = os.getenv("BRIDLE_POLICY_RECORD")
  if not path or not under_test(self.file) then return end
  local record <close> = assert(io.open(path, "ab"))
  record:write(('{"profile":%s,"manifest":%s,%s}\n'):format(json.encode(self.profile or ""),
    json.encode(self.manifest or ""), line))
end

local function directory(file) return file:match("^(.*/)[^/]*$") or "" end

local function resolve(file, spec, level)
  if file == nil then
    local given = os.getenv("BRIDLE_POLICY_FILE")
    if given then return given end
    local beside = spec:gsub("_spec%.lua$", ".lua")
    if beside ~= spec and exists(beside) then return beside end
    refuse(level + 1, "testing.load() is the bundle under test: run 'bridle policy test FILE', or name "
      .. "the file")
  end
  if type(file) ~= "string" or file == "" then
    refuse(level + 1, "testing.load takes the name of a file, not %s", type(file) == "string"
      and "an empty text" or "a " .. type(file))
  end
  local path = file:sub(1, 1) == "/" and file or directory(spec) .. file
  if not exists(path) then refuse(level + 1, "there is no bundle '%s' (from '%s')", path, spec) end
  local real = io.popen("realpath -- " .. quote(path), "r")
  local out = real and real:read("l")
  if real then real:close() end
  return out or path
end

--- Compile a bundle. A relative name is one beside the spec; without a name it is the bundle that
--- `bridle policy test` was given, else the one that the spec is named after.
---@param file string?
---@param options { profile: string?, manifest: string? }?
---@return bridle.testing.bundle
function testing.load(file, options)
  local spec = here(2)
  options = options or {}
  known(1, "testing.load", options, { profile = true, manifest = true })
  local path = resolve(file, spec, 1)
  local manifest = options.manifest
  if manifest and manifest:sub(1, 1) ~= "/" then manifest = directory(spec) .. manifest end
  local profile = options.profile
  if profile and profile:find("%.lua$") and profile:sub(1, 1) ~= "/" then
    profile = directory(spec) .. profile
  end
  profile = profile or os.getenv("BRIDLE_POLICY_PROFILE")
  manifest = manifest or os.getenv("BRIDLE_POLICY_MANIFEST")
  local key = table.concat({ path, profile or "", manifest or "" }, "\0")
  if open[key] then return open[key] end
  local self = setmetatable({ file = path, profile = profile, manifest = manifest }, Bundle)
  self.to, self.from = start(path, self)
  local mutant = under_test(path) and os.getenv("BRIDLE_POLICY_MUTANT")
  local said = exchange(self, mutant and ('{"mutant":%s}'):format(mutant) or "{}")
  if said.error then error(said.error.message or said.error.code, 0) end
  open[key] = self
  return self
end

-- ---- requests ----

local FIELDS = { exec = true, cwd = true, action = true, subject = true, tool = true, input = true,
  at = true, model = true, env = true, budget = true, context = true }
local CASE = { [1] = true, effect = true, rule = true, recorded = true }
for name in pairs(FIELDS) do CASE[name] = true end
local EFFECTS = { allow = true, ask = true, deny = true }

--- "2026-11-29 22:00" is local time, with a Z behind it UTC; a number is one of seconds.
local function seconds(at, level)
  if math.type(at) == "integer" and at > 0 then return at end
  local y, mo, d, h, mi, rest = tostring(at):match("^(%d%d%d%d)-(%d%d)-(%d%d)[ T](%d%d):(%d%d)(.*)$")
  local s, zone = (rest or ""):match("^:?(%d*)(Z?)$")
  if not zone then
    refuse(level + 1, "'at' is a time like \"2026-11-29 22:00\", or with a Z for UTC, not '%s'", tostring(at))
  end
  local t = { year = tonumber(y), month = tonumber(mo), day = tonumber(d), hour = tonumber(h),
    min = tonumber(mi), sec = tonumber(s) or 0 }
  local time = os.time(t)
  if zone == "Z" then -- what UTC reads when local clocks read t, and the difference back
    local utc = os.date("!*t", time)
    utc.isdst = false
    time = time + (time - os.time(utc))
  end
  return time
end

local function changes(env, level)
  local list = setmetatable({}, { __jsontype = "array" })
  for name, value in pairs(env) do
    if type(name) == "number" then
      list[#list + 1] = value
    else
      list[#list + 1] = value == false and name or ("%s=%s"):format(name, tostring(value))
    end
    if type(list[#list]) ~= "string" then
      refuse(level + 1, "'env' maps names to values (false: it is removed), or lists \"NAME=VALUE\"")
    end
  end
  table.sort(list)
  return list
end

local function context_of(case, level)
  local context = {}
  for key, value in pairs(case.context or {}) do context[key] = value end
  context.time = case.at and seconds(case.at, level + 1) or context.time or os.time()
  if case.model then context.model = case.model end
  if case.tool and not case.input then context.tool = case.tool end
  if case.budget then
    known(level + 1, "'budget'", case.budget, { calls = true, tokens = true, asks = true })
    for counter, used in pairs(case.budget) do context[counter] = used end
  end
  if case.env then
    if case.exec or case.action == "process.exec" or case.input then
      refuse(level + 1, "a command changes the environment itself: write exec = \"NAME=value command\"")
    end
    context.env = changes(case.env, level + 1)
  end
  return context
end

local function request_of(case, level)
  local q = { context = context_of(case, level + 1), explain = true, cwd = case.cwd }
  local ways = (case.exec and 1 or 0) + (case.action and 1 or 0) + (case.input and 1 or 0)
  if ways ~= 1 then
    refuse(level + 1, "a request is one of exec = COMMAND, action = NAME with a subject, or tool = NAME "
      .. "with an input; this has %s", ways == 0 and "none" or "several")
  end
  if case.exec then
    q.action = "process.exec"
    if type(case.exec) == "table" then
      q.argv = setmetatable(table.move(case.exec, 1, #case.exec, 1, {}), { __jsontype = "array" })
    else
      q.shell = tostring(case.exec)
    end
  elseif case.input then
    q.tool, q.input = case.tool, case.input
  elseif case.action == "process.exec" and case.subject then
    q.action, q.shell = case.action, case.subject
  else
    q.action, q.subject = case.action, case.subject
  end
  return q
end

local function decide(self, q, expect)
  local text = json.encode(q)
  local said, line = exchange(self, text)
  note(self, ('"request":%s,"expect":%s,"said":%s'):format(text,
    expect and json.encode(expect) or "null", line))
  return said
end

--- Decide one request; the answer has effect, ruleId, rule (as its author wrote it), source, reason,
--- where, and votes.
---@param request table
---@return table decision
function Bundle:decide(request)
  if type(request) ~= "table" then refuse(1, "bundle:decide takes a table, not a %s", type(request)) end
  known(1, "a request", request, FIELDS)
  local said = decide(self, request_of(request, 1))
  if said.error then refuse(1, "%s", said.error.message or said.error.code) end
  return said
end

-- ---- cases ----

--- The line of each table of a list that is written down in a call at `line` of a spec; nil where the
--- text does not have n of them. Reads no more than brackets, texts and comments.
local function case_lines(path, line, n)
  local file <close> = io.open(path, "rb")
  local text = file and file:read("a")
  if not text then return nil end
  local at, now = 1, 1
  while now < line do
    at = text:find("\n", at, true)
    if not at then return nil end
    at, now = at + 1, now + 1
  end
  local from = text:find("testing%.cases", at) or at
  now = now + select(2, text:sub(at, from - 1):gsub("\n", ""))
  at = from
  local depth, lines = 0, {}
  local function skip(to)
    now = now + select(2, text:sub(at, to):gsub("\n", ""))
    at = to + 1
  end
  while at <= #text do
    local c = text:sub(at, at)
    local level = text:match("^%[(=*)%[", at) or text:match("^%-%-%[(=*)%[", at)
    if level then
      skip(select(2, text:find("]" .. level .. "]", at, true)) or #text)
    elseif text:find("^%-%-", at) then
      skip((text:find("\n", at, true) or #text + 1) - 1)
    elseif c == '"' or c == "'" then
      local to = at + 1
      while to <= #text and text:sub(to, to) ~= c do
        to = to + (text:sub(to, to) == "\\" and 2 or 1)
      end
      skip(to)
    else
      if c == "{" or c == "(" or c == "[" then
        if c == "{" and depth == 2 then lines[#lines + 1] = now end
        depth = depth + 1
      elseif c == "}" or c == ")" or c == "]" then
        depth = depth - 1
        if depth == 0 then break end
      end
      skip(at)
    end
  end
  return #lines == n and lines or nil
end

local function bare(id) -- as its author wrote it
  return id and (id:gsub("^%l+:", ""):gsub("#%d+$", ""))
end

local function shown(case)
  local what = case.exec or (case.input and case.tool) or case.action
  if type(what) == "table" then what = "{ " .. table.concat(what, ", ") .. " }" end
  local detail = case.subject or (case.input and json.encode(case.input))
  return detail and ("%s %s"):format(what, detail) or tostring(what)
end

local function placed(item) return item.where and (" (%s)"):format(item.where) or "" end

local function report(case, said, where, problem)
  local lines = { ("%s: %s"):format(where, problem), "  request  " .. shown(case) }
  lines[#lines + 1] = ("  expected %s%s"):format(case.effect or "any effect",
    case.rule and " by " .. case.rule or "")
  lines[#lines + 1] = ("  decided  %s by %s%s%s"):format(said.effect, said.ruleId, placed(said),
    said.reason and ": " .. said.reason or "")
  for _, vote in ipairs(said.votes or {}) do
    lines[#lines + 1] = ("  vote     %s %s by %s%s%s"):format(vote.source, vote.effect, vote.ruleId,
      placed(vote), vote.reason and ": " .. vote.reason or "")
  end
  if #(said.votes or {}) == 0 then lines[#lines + 1] = "  vote     none: no rule has an opinion" end
  return table.concat(lines, "\n")
end

--- A vote that is as strict as the answer decided it, alone or with others.
local function decided_by(said, rule)
  if said.ruleId == rule or bare(said.ruleId) == rule then return true end
  for _, vote in ipairs(said.votes or {}) do
    if vote.effect == said.effect and (vote.ruleId == rule or bare(vote.ruleId) == rule) then return true end
  end
  return false
end

local function check(self, case, where)
  local said = decide(self, request_of(case, 1), { effect = case.effect, rule = case.rule, where = where })
  if said.error then
    busted.fail(("%s: the request was refused: %s\n  request  %s"):format(where,
      said.error.message or said.error.code, shown(case)), 0)
  end
  local problem
  if case.effect and said.effect ~= case.effect then
    problem = ("expected %s, not %s"):format(case.effect, said.effect)
  elseif case.rule and not decided_by(said, case.rule) then
    problem = ("expected the rule '%s' to decide, not '%s'"):format(case.rule, bare(said.ruleId))
  end
  if problem then busted.fail(report(case, said, where, problem), 0) end
end

--- One `it` for each case: a request, with `effect`, `rule`, or both, and a name in front.
---@param bundle bridle.testing.bundle
---@param list table[]
function testing.cases(bundle, list)
  local spec, line = here(2)
  if getmetatable(bundle) ~= Bundle then
    refuse(1, "testing.cases takes a bundle of testing.load and a list of cases")
  end
  if type(list) ~= "table" or #list == 0 then refuse(1, "testing.cases has no cases; nothing is tested") end
  local lines = case_lines(spec, line, #list)
  for i, case in ipairs(list) do
    local where = lines and ("%s:%d"):format(spec, lines[i]) or ("%s:%d: case %d"):format(spec, line, i)
    if type(case) ~= "table" then error(("%s: a case is a table, not a %s"):format(where, type(case)), 0) end
    local ok, problem = pcall(function()
      known(BARE, "a case", case, CASE)
      if not case.effect and not case.rule then error("it expects nothing; say effect, rule, or both", 0) end
      if case.effect and not EFFECTS[case.effect] then
        error(("there is no effect '%s': allow, ask or deny"):format(tostring(case.effect)), 0)
      end
      request_of(case, BARE)
    end)
    if not ok then error(("%s: %s"):format(where, tostring(problem)), 0) end
    local name = case[1] or ("%s: %s%s"):format(shown(case), case.effect or "decided",
      case.rule and " by " .. case.rule or "")
    busted.it(name, function() check(bundle, case, where) end)
  end
end

--- The recorded calls of an export of `bridle show --json`, as cases that expect what was decided.
---@param file string
---@param bundle bridle.testing.bundle? whose process reads it
---@return table[]
function testing.recorded(file, bundle)
  local spec = here(2)
  local path = file:sub(1, 1) == "/" and file or directory(spec) .. file
  local self = bundle or select(2, next(open))
  if not self then refuse(1, "testing.recorded reads with a bundle; call testing.load first") end
  local said = exchange(self, json.encode { recorded = path })
  if said.error then refuse(1, "%s", said.error.message or said.error.code) end
  local list = {}
  for i, item in ipairs(said.recorded) do
    local q = item.request
    list[i] = { ("%s %s"):format(item.run, item.callId), tool = q.tool, input = q.input, exec = q.shell,
      action = not q.shell and q.action or nil, subject = q.subject, context = q.context,
      effect = item.effect, rule = bare(item.ruleId), recorded = item }
  end
  return list
end

return testing
