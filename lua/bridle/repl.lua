--- Helpers of `bridle repl` for looking through lists; snapshots and tables alike.

local repl = {}

local function list_of(list, name)
  if type(list) ~= "table" then
    error(("%s takes a list, not a %s"):format(name, type(list)), 3)
  end
  return list
end

--- A table of your own with what is in `x`, tables in it included.
---@generic T
---@param x T
---@return T
function repl.copy(x)
  if type(x) ~= "table" then return x end
  local function walk(from, depth)
    if depth > 100 then error("copy: the table is nested too deeply", 0) end
    local to = {}
    for k, v in pairs(from) do
      to[k] = type(v) == "table" and walk(v, depth + 1) or v
    end
    return to
  end
  return walk(x, 1)
end

--- The elements for which f is true.
---@param list table
---@param f fun(element: any): any
---@return table
function repl.filter(list, f)
  local out = {}
  for _, v in ipairs(list_of(list, "filter")) do
    if f(v) then out[#out + 1] = v end
  end
  return out
end

--- What f gives for each element, without nils.
---@param list table
---@param f fun(element: any): any
---@return table
function repl.map(list, f)
  local out = {}
  for _, v in ipairs(list_of(list, "map")) do out[#out + 1] = f(v) end
  return out
end

--- How many elements; for how many f is true; or, if it gives texts, how often each text comes.
---@param list table
---@param f? fun(element: any): any
---@return integer|table<string, integer>
function repl.count(list, f)
  list_of(list, "count")
  if not f then return #list end
  local n, texts = 0, nil
  for _, v in ipairs(list) do
    local r = f(v)
    if type(r) == "string" then
      texts = texts or {}
      texts[r] = (texts[r] or 0) + 1
    elseif r then
      n = n + 1
    end
  end
  return texts or n
end

return repl
