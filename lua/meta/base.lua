---@meta _
-- Made by core/script/api_make.lua from core/script/api.def; not edited by hand.

---Globals. They are read-only: a name is defined with `local`. Reading a global that does not exist
---is an error that names the nearest one.

---Gives all its arguments back, or raises `message` if `value` is false or nil.
---Errors: `message`, or "assertion failed!".
---@param value any
---@param message? any
---@param ... any
---@return any ...
function assert(value, message, ...) end

---Raises an error. A text gets the file and line of the caller in front; `level` 0 leaves it alone.
---Errors: Always.
---@param message? any
---@param level? integer
function error(message, level) end

---The metatable of a value is not shown: `false` where there is one, nil where there is none.
---@param value any
---@return any metatable
function getmetatable(value) end

---Iterates over the elements 1, 2, ... of a list up to the first nil.
---@param list any
---@return function iterator
---@return any list
---@return integer start
function ipairs(list) end

---The key and the value after `key`; the first ones without it; nil at the end.
---Errors: A key that the table does not have.
---@param t table
---@param key? any
---@return any key
---@return any? value
function next(t, key) end

---Iterates over all keys of a table, in no order. A `__pairs` of its metatable is called.
---@param t any
---@return function iterator
---@return any t
---@return any start
function pairs(t) end

---Calls `f` and gives true and its results, or false and the error. Running out of time cannot be
---caught: that error is raised again.
---@param f any
---@param ... any
---@return boolean ok
---@return any ...
function pcall(f, ...) end

---Equality without `__eq`.
---@param a any
---@param b any
---@return boolean equal
function rawequal(a, b) end

---A field without `__index`.
---@param t table
---@param key any
---@return any value
function rawget(t, key) end

---The length of a table or text, without a metatable's opinion.
---@param value table|string
---@return integer length
function rawlen(value) end

---A module. All modules are built in, and which of them there are depends on what the file is for;
---files, paths and packages cannot be loaded.
---Errors: A name that no module has, or that this kind of file cannot use.
---@param name string
---@return table module
function require(name) end

---The arguments from the `n`-th on (from the end if negative); their number for "#".
---Errors: An index of 0, or before the first.
---@param n integer|string
---@param ... any
---@return any ...
function select(n, ...) end

---Gives a table a metatable, once. The metamethods that count are copied at that moment: `__index`,
---`__newindex`, `__call`, `__tostring`, `__eq`, `__lt`, `__le`, `__concat`, `__name`, `__pairs`.
---Errors: A metatable with `__gc`, `__mode`, `__close`, `__metatable`, `__len` or arithmetic; a
---table that has a metatable already.
---@param t table
---@param metatable table
---@return table t
function setmetatable(t, metatable) end

---A number made of a text, or nil. With a base from 2 to 36, an integer.
---@param value any
---@param base? integer
---@return number|nil number
function tonumber(value, base) end

---A text for people. Addresses are not shown: a table without `__tostring` is its `__name`, or
---"table".
---@param value any
---@return string text
function tostring(value) end

---The type of a value, as a text.
---@param value any
---@return string name
function type(value) end

---The language.
---@type string
_VERSION = nil
