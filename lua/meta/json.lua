---@meta json
-- Made by core/script/api_make.lua from core/script/api.def; not edited by hand.

---Strict JSON, also as `require "json"`. Integers stay integers; a text with a key twice, bad
---UTF-8, NaN or anything behind its end is refused; 64 levels and 200,000 parts at most.
json = {}

---Marks a table (a new one if none is given) as an array, so that it is `[]` when it is empty.
---Errors: A table that has a metatable.
---@param list? table
---@return table list
function json.array(list) end

---The value of a JSON text; nil and a message if it is none. `null` is `json.null`.
---@param text string
---@return any value
---@return string? message
function json.decode(text) end

---The JSON text of a value, keys sorted, no blanks.
---Errors: Functions, infinity, tables that are neither a list nor a mapping, bad UTF-8, more than
---64 levels.
---@param value any
---@return string text
function json.encode(value) end

---Does the value carry the mark of `json.array`? Arrays that `json.decode` made do.
---@param value any
---@return boolean marked
function json.is_array(value) end

---What stands for `null` in a table.
---@type userdata
json.null = nil

return json
