--- The nearest known word to a misspelt one, for error messages.

--- Edits (insert, delete, replace, swap of neighbours) that turn a into b.
---@param a string
---@param b string
---@return integer
local function distance(a, b)
  local before, row = nil, {}
  for j = 0, #b do row[j] = j end
  for i = 1, #a do
    local new = { [0] = i }
    for j = 1, #b do
      local same = a:byte(i) == b:byte(j)
      new[j] = math.min(row[j] + 1, new[j - 1] + 1, row[j - 1] + (same and 0 or 1))
      if before and j > 1 and a:byte(i) == b:byte(j - 1) and a:byte(i - 1) == b:byte(j) then
        new[j] = math.min(new[j], before[j - 2] + 1)
      end
    end
    before, row = row, new
  end
  return row[#b]
end

local nearest = {}

--- The word of `known` that needs the fewest edits, and how many; nil if none is near.
---@param word string
---@param known string[]
---@return string?, integer?
function nearest.word(word, known)
  if #word > 64 then return nil end
  local best, least = nil, #word // 2 + 1
  for _, candidate in ipairs(known) do
    local d = math.abs(#word - #candidate) -- it is at least this
    if d <= least then d = distance(word, candidate) end
    if d < least or (d == least and best and candidate < best) then
      best, least = candidate, d
    end
  end
  if best then return best, least end
  return nil
end

--- "; did you mean 'x'?", or "; known are 'a', 'b'", to append to a message.
---@param word string
---@param known string[]
---@return string
function nearest.hint(word, known)
  local best = nearest.word(word, known)
  if best then return ("; did you mean '%s'?"):format(best) end
  local names = {}
  for i, name in ipairs(known) do names[i] = "'" .. name .. "'" end
  table.sort(names)
  return "; known are " .. table.concat(names, ", ")
end

nearest.distance = distance

return nearest
