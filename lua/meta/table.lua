---@meta _
-- Made by core/script/api_make.lua from core/script/api.def; not edited by hand.

---Raw access only: a table that answers with `__index` or `__newindex` is refused, because such
---functions would decide how long a loop is. One call walks at most 1,000,000 elements.
table = {}

---The texts and numbers of a list, joined.
---Errors: An element that is neither; a text of more than 16 MiB.
---@param list table
---@param separator? string
---@param first? integer
---@param last? integer
---@return string s
function table.concat(list, separator, first, last) end

---Appends a value, or inserts it at a position from 1 to the length + 1.
---Errors: A position outside of that.
---@param list table
---@param position any
---@param value? any
function table.insert(list, position, value) end

---A table of the arguments, with their number as `n`.
---@param ... any
---@return table t
function table.pack(...) end

---Removes an element, the last one if no position is given, and gives it back.
---Errors: A position outside of the list.
---@param list table
---@param position? integer
---@return any value
function table.remove(list, position) end

---Sorts in place, by `<` or by a function of two elements. Not stable; n log n steps whatever the
---function answers.
---Errors: Elements that cannot be compared.
---@param list table
---@param less? function
function table.sort(list, less) end

---The elements as results.
---Errors: 10,000 results or more.
---@param list table
---@param first? integer
---@param last? integer
---@return any ...
function table.unpack(list, first, last) end
