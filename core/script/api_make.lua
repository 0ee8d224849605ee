--- Makes what is made of core/script/api.def. Run by CMake and by the test script.api, and by hand:
---
---     lua5.4 core/script/api_make.lua write     the committed files, after api.def was changed
---     lua5.4 core/script/api_make.lua check     are they as they would be written?
---     lua5.4 core/script/api_make.lua table FILE, rows FILE     C, for the build
---
--- Runs in the source directory. Trusts api.def, which is a part of the program.

local def = { libraries = {}, classes = {}, absent = {} }

-- ---- reading ----

local function refuse(message, ...)
  io.stderr:write("core/script/api.def: ", message:format(...), "\n")
  os.exit(1)
end

--- "name?: type" taken apart.
local function parameter(text, where)
  local name, optional, kind = text:match("^([%a_][%w_]*)(%??): (.+)$")
  if not name then
    name, kind = text:match("^(%.%.%.): (.+)$")
    optional = ""
  end
  if not name then refuse("%s: '%s' is not 'name: type'", where, text) end
  return { name = name, type = kind, optional = optional == "?" or name == "..." }
end

local function parameters(list, where)
  local out = {}
  for i, text in ipairs(list) do
    out[i] = parameter(text, where)
    if out[i].name == "..." and i < #list then refuse("%s: '...' is the last one", where) end
  end
  return out
end

local function one_line(text)
  return (text:gsub("%s+", " "):gsub("^ ", ""):gsub(" $", ""))
end

local known = { params = true, returns = true, doc = true, errors = true, example = true, c = true,
  wrap = true, since = true, type = true }

local function entry(kind, name, fields)
  local lib = def.libraries[#def.libraries]
  for key in pairs(fields) do
    if not known[key] then refuse("%s: '%s' is not a field", name, key) end
  end
  if not fields.doc or not fields.example then refuse("%s needs a doc and an example", name) end
  local prefix, short = name:match("^(.+)%.([^.]+)$")
  if (prefix or "base") ~= lib.short then refuse("%s stands in library '%s'", name, lib.name) end
  local e = { kind = kind, name = name, short = short or name, lib = lib, doc = one_line(fields.doc),
    errors = fields.errors and one_line(fields.errors), example = fields.example, c = fields.c,
    wrap = fields.wrap, type = fields.type, since = fields.since or def.since,
    params = parameters(fields.params or {}, name), returns = parameters(fields.returns or {}, name) }
  lib[#lib + 1] = e
end

local function named(f)
  return function(name) return function(fields) f(name, fields) end end
end

local language = {
  since = function(version) def.since = version end,
  purposes = function(list) def.purposes = list end,
  absent = function(list) def.absent = list end,
  library = named(function(name, fields)
    fields.name, fields.short, fields.doc = name, name:match("[^.]+$"), one_line(fields.doc)
    fields.purposes = fields.purposes or def.purposes
    def.libraries[#def.libraries + 1] = fields
  end),
  fn = named(function(name, fields) entry("function", name, fields) end),
  value = named(function(name, fields) entry("value", name, fields) end),
  class = named(function(name, fields)
    fields.name, fields.lib = name, def.libraries[#def.libraries]
    def.classes[#def.classes + 1] = fields
  end),
}

assert(loadfile("core/script/api.def", "t", language))()

-- ---- examples ----

--- What is in front of a marker and behind it, or nil.
local function marked(line, marker)
  local at = line:find(marker, 1, true)
  if not at then return nil end
  return line:sub(1, at - 1):match("^%s*(.-)%s*$"), line:sub(at + #marker):match("^%s*(.-)%s*$")
end

--- The example as a chunk that checks itself with __expect(line, text, ...) and __refuse(line, text,
--- function).
local function chunk_of(name, example)
  local out, number = {}, 0
  for line in example:gmatch("([^\n]*)\n") do
    number = number + 1
    local code, want = marked(line, "--> ")
    if not code then code, want = marked(line .. " ", "--> ") end
    if code then
      out[number] = ("__expect(%d, %q, %s)"):format(number, want, code)
    else
      code, want = marked(line, "--! ")
      if code then
        local body = load("return " .. code) and "return " .. code or code
        out[number] = ("__refuse(%d, %q, function() %s end)"):format(number, want, body)
      else
        out[number] = line
      end
    end
  end
  local text = table.concat(out, "\n") .. "\n"
  local ok, message = load(text, "=" .. name, "t")
  if not ok then refuse("the example of %s: %s", name, message) end
  if not text:find("__", 1, true) then refuse("the example of %s shows nothing", name) end
  return text
end

-- ---- C ----

local function c_text(text)
  return '"' .. text:gsub('[%c"\\\127-\255?]', function(c)
    if c == "\n" then return "\\n" end
    return ("\\%03o"):format(c:byte())
  end):gsub("\\n(.)", '\\n"\n        "%1') .. '"'
end

local basic = { ["nil"] = "NIL", boolean = "BOOLEAN", number = "NUMBER", integer = "INTEGER",
  string = "STRING", table = "TABLE", ["function"] = "FUNCTION", userdata = "USERDATA", any = "ANY" }

--- A type as an expression of bits; classes and lists are tables.
local function mask(kind)
  local bits = {}
  kind = kind:gsub("fun%b()[^|]*", "function")
  for part in kind:gmatch("[^|]+") do
    bits[#bits + 1] = "API_" .. (basic[one_line(part)] or "TABLE")
  end
  return table.concat(bits, " | ")
end

local function masks(list)
  local out = {}
  for i, p in ipairs(list) do
    out[i] = mask(p.type) .. (p.optional and " | API_OPTIONAL" or "")
      .. (p.name == "..." and " | API_REST" or "")
  end
  out[#out + 1] = "0"
  return "{" .. table.concat(out, ", ") .. "}"
end

local function purpose_bits(lib)
  local out = {}
  for i, p in ipairs(lib.purposes) do out[i] = "BR_API_" .. p:upper() end
  return table.concat(out, " | ")
end

local function make_table()
  local out = { "/* Made by core/script/api_make.lua from api.def. */" }
  local function put(text, ...) out[#out + 1] = text:format(...) end
  local rows = {}
  for _, lib in ipairs(def.libraries) do
    for _, e in ipairs(lib) do
      if e.c then put("int %s(lua_State *L);", e.c) end
      if e.c or not lib.module then
        rows[#rows + 1] = ("    {%s, %s, %s, %s},"):format(c_text(lib.name), c_text(e.short),
          e.c or "NULL", tostring(e.wrap or false))
      end
    end
  end
  put("\n#ifdef BR_API_TABLE /* lib.c alone */")
  put("static const struct api_row api_rows[] = {\n%s\n};", table.concat(rows, "\n"))
  put("\nstatic const struct api_module api_modules[] = {")
  for _, lib in ipairs(def.libraries) do
    if lib.module or lib.data then
      put("    {%s, %s, %s},", c_text(lib.name .. (lib.data and "." or "")), tostring(lib.data or false),
        purpose_bits(lib))
    end
  end
  put("};\n\nstatic const char *const api_absent[] = {")
  for _, name in ipairs(def.absent) do put("    %s,", c_text(name)) end
  put("};\n#endif")
  return table.concat(out, "\n") .. "\n"
end

local function make_rows()
  local out = { "/* Made by core/script/api_make.lua from api.def; for test_script_api. */\n" ..
    "static const struct api_entry entries[] = {" }
  local function put(text, ...) out[#out + 1] = text:format(...) end
  for _, lib in ipairs(def.libraries) do
    if lib.example then
      put("    {%s, NULL, NULL, 'd', %s, {0}, {0},\n        %s},", c_text(lib.name), purpose_bits(lib),
        c_text(chunk_of(lib.name, lib.example)))
    end
    for _, e in ipairs(lib) do
      put("    {%s, %s, %s, '%s', %s, %s, %s,\n        %s},", c_text(e.name),
        lib.name == "base" and "NULL" or c_text(lib.name), c_text(e.short),
        e.kind == "function" and (e.c and "c" or lib.module and "l" or "s") or "v", purpose_bits(lib),
        masks(e.kind == "value" and { { name = "", type = e.type } } or e.params), masks(e.returns),
        c_text(chunk_of(e.name, e.example)))
    end
  end
  put("};\n\nstatic const struct api_class classes[] = {")
  for _, class in ipairs(def.classes) do
    local names = {}
    for i, field in ipairs(class) do names[i] = c_text(field[1]) .. ", " end
    put("    {%s, {%sNULL}},", c_text(class.name), table.concat(names))
  end
  put("};")
  return table.concat(out, "\n") .. "\n"
end

-- ---- LuaLS ----

local made = "Made by core/script/api_make.lua from core/script/api.def; not edited by hand."

local function wrapped(text, first, width)
  local lines, line = {}, first
  for word in text:gmatch("%S+") do
    if #line + #word + 1 > width and line ~= first then
      lines[#lines + 1] = line
      line = first
    end
    line = line == first and line .. word or line .. " " .. word
  end
  lines[#lines + 1] = line
  return table.concat(lines, "\n")
end

local reserved = { ["end"] = true, ["function"] = true, ["repeat"] = true }

local function meta_entry(put, prefix, e)
  put("")
  put("%s", wrapped(e.doc, "---", 100))
  if e.errors then put("%s", wrapped("Errors: " .. e.errors, "---", 100)) end
  if e.kind == "value" then
    put("---@type %s", e.type)
    put("%s%s = nil", prefix, e.short)
    return
  end
  local names = {}
  for i, p in ipairs(e.params) do
    names[i] = reserved[p.name] and p.name .. "_" or p.name
    put("---@param %s%s %s", names[i], p.optional and p.name ~= "..." and "?" or "", p.type)
  end
  for _, r in ipairs(e.returns) do
    if r.name == "..." then
      put("---@return %s ...", r.type)
    else
      put("---@return %s%s %s", r.type, r.optional and "?" or "", r.name)
    end
  end
  put("function %s%s(%s) end", prefix, e.short, table.concat(names, ", "))
end

local function make_meta(lib)
  local out = {}
  local function put(text, ...) out[#out + 1] = text:format(...) end
  put("---@meta %s", lib.module and lib.name or "_")
  put("-- %s", made)
  for _, class in ipairs(def.classes) do
    if class.lib == lib then
      put("")
      put("---@class %s", class.name)
      for _, field in ipairs(class) do
        local optional = field[2]:find("nil", 1, true) and "?" or ""
        local kind = field[2]:gsub("|nil", ""):gsub("nil|", "")
        put("---@field %s%s %s %s", field[1], optional, kind, field[3])
      end
    end
  end
  put("")
  put("%s", wrapped(lib.doc, "---", 100))
  if lib.name ~= "base" then put("%s%s = {}", lib.module and not lib.global and "local " or "", lib.short) end
  for _, e in ipairs(lib) do meta_entry(put, lib.name == "base" and "" or lib.short .. ".", e) end
  if lib.module then put("\nreturn %s", lib.short) end
  return table.concat(out, "\n") .. "\n"
end

-- ---- luacheck ----

local function make_std()
  local out = { "-- " .. made,
    "-- The globals of a sandboxed state, for luacheck: stds.bridle in .luacheckrc.",
    "return {", "  read_globals = {" }
  local function put(text, ...) out[#out + 1] = text:format(...) end
  for _, lib in ipairs(def.libraries) do
    if lib.name == "base" then
      local names = {}
      for i, e in ipairs(lib) do names[i] = ("%q"):format(e.name) end
      put("%s,", wrapped(table.concat(names, ", "), "    ", 100))
    elseif not lib.data and (lib.global or not lib.module) then
      local names = {}
      for i, e in ipairs(lib) do names[i] = e.short .. " = {}" end
      put("    %s = { fields = {\n%s\n    } },", lib.name, wrapped(table.concat(names, ", "), "      ", 100))
    end
  end
  put("  },\n}")
  return table.concat(out, "\n") .. "\n"
end

-- ---- the page ----

local function signature(e)
  if e.kind == "value" then return ("%s: %s"):format(e.name, e.type) end
  local params, returns = {}, {}
  for i, p in ipairs(e.params) do params[i] = p.name .. (p.optional and p.name ~= "..." and "?" or "") end
  for i, r in ipairs(e.returns) do
    returns[i] = r.type .. (r.optional and r.name ~= "..." and "?" or "") .. (r.name == "..." and "..." or "")
  end
  return ("%s(%s)%s"):format(e.name, table.concat(params, ", "),
    #returns > 0 and " -> " .. table.concat(returns, ", ") or "")
end

local function cell(text)
  return (text:gsub("|", "\\|"))
end

local function page_entry(put, e)
  put("### `%s`\n", signature(e))
  put("%s\n", e.doc)
  if #e.params > 0 then
    local list = {}
    for i, p in ipairs(e.params) do list[i] = ("`%s`: `%s`"):format(p.name, p.type) end
    put("Takes %s.\n", table.concat(list, ", "))
  end
  if e.errors then put("Errors: %s\n", e.errors) end
  put("Since %s.\n", e.since)
  put("```lua\n%s```\n", e.example)
end

local function page_classes(put, lib)
  for _, class in ipairs(def.classes) do
    if class.lib == lib then
      put("### %s%s\n", class.name, class.of and " (" .. class.of .. ")" or "")
      put("| field | type | |\n|---|---|---|")
      for _, f in ipairs(class) do put("| `%s` | `%s` | %s |", f[1], cell(f[2]), cell(f[3])) end
      put("")
    end
  end
end

local function make_page()
  local out = {}
  local function put(text, ...) out[#out + 1] = text:format(...) end
  put("<!-- %s -->", made)
  put("# The Lua API\n")
  put([[What a policy, a configuration (`bridle.lua`), a profile and an adapter can call. They run as Lua 5.4
in a sandbox without files, network, clock or randomness; each example below runs as a test in it. Behind
`-->` is what an expression gives, behind `--!` a part of the error that a line raises.

An editor with the Lua language server knows all of it with this `.luarc.json` beside the file, in which
`lua/meta` is that folder of Bridle's sources, or of an installation (`/usr/share/bridle/lua/meta`):

```json
{ "runtime.version": "Lua 5.4", "workspace.library": ["lua/meta"],
  "runtime.builtin": { "basic": "disable", "bit32": "disable", "coroutine": "disable", "debug": "disable",
    "io": "disable", "math": "disable", "os": "disable", "package": "disable", "string": "disable",
    "table": "disable", "utf8": "disable" } }
```

and luacheck with `stds.bridle = dofile("lua/meta/luacheck.lua"); std = "bridle"` in its `.luacheckrc`.

What a file may not use up, and what happens then: `docs/decisions/0030-lua-is-not-a-boundary.md`.]])
  local gone = {}
  for i, name in ipairs(def.absent) do gone[i] = "`" .. name .. "`" end
  put("There is no %s.\n", table.concat(gone, ", "))
  put("| library | for |\n|---|---|")
  for _, lib in ipairs(def.libraries) do
    put("| [%s](#%s) | %s |", lib.name, lib.name:gsub("%.", ""), table.concat(lib.purposes, ", "))
  end
  for _, lib in ipairs(def.libraries) do
    put("\n## %s\n\n%s\n", lib.name, lib.doc)
    if lib.example then put("```lua\n%s```\n", lib.example) end
    page_classes(put, lib)
    for _, e in ipairs(lib) do page_entry(put, e) end
  end
  return (table.concat(out, "\n"):gsub("\n\n\n+", "\n\n"):gsub("\n+$", "") .. "\n")
end

-- ---- files ----

local function committed()
  local files = { ["docs/lua-api.md"] = make_page(), ["lua/meta/luacheck.lua"] = make_std() }
  for _, lib in ipairs(def.libraries) do
    if not lib.data then files["lua/meta/" .. lib.name:gsub("%.", "-") .. ".lua"] = make_meta(lib) end
  end
  return files
end

local function read(path)
  local file <close> = io.open(path, "rb")
  return file and file:read("a")
end

local function write(path, text)
  local file <close> = assert(io.open(path, "wb"))
  assert(file:write(text))
end

local verb, path = ...
if verb == "table" and path then
  write(path, make_table())
elseif verb == "rows" and path then
  write(path, make_rows())
elseif verb == "write" then
  for name, text in pairs(committed()) do write(name, text) end
elseif verb == "check" then
  local stale = {}
  for name, text in pairs(committed()) do
    if read(name) ~= text then stale[#stale + 1] = name end
    if name:find("%.lua$") then assert(load(text, "=" .. name, "t")) end
  end
  table.sort(stale)
  if #stale > 0 then
    io.stderr:write("not as core/script/api.def says: ", table.concat(stale, ", "),
      "; run 'lua5.4 core/script/api_make.lua write'\n")
    os.exit(1)
  end
else
  io.stderr:write("usage: lua5.4 core/script/api_make.lua write|check|table FILE|rows FILE\n")
  os.exit(2)
end
