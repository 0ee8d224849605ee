---@meta _
-- Made by core/script/api_make.lua from core/script/api.def; not edited by hand.

---Texts are bytes. They have these functions as methods: `("ab"):rep(2)`. Patterns are those of Lua
---5.4; a match may take 1,000,000 steps and 64 more for each byte of its text, which no sensible
---pattern needs. A text that a function makes has at most 16 MiB.
string = {}

---The bytes from position `i` (1 if left out) to `j` (`i` if left out).
---@param s string
---@param i? integer
---@param j? integer
---@return integer ...
function string.byte(s, i, j) end

---The text of these bytes.
---Errors: A number that is no byte.
---@param ... integer
---@return string s
function string.char(...) end

---Where the pattern matches first, from `init` on, and its captures; nil if nowhere. With `plain`,
---the pattern is a text.
---Errors: A malformed pattern; one that takes too many steps.
---@param s string
---@param pattern string
---@param init? integer
---@param plain? boolean
---@return integer|nil first
---@return integer? last
---@return any ...
function string.find(s, pattern, init, plain) end

---A text by a format, as C has it, with `%q` and `%i`. There is no `%p`.
---Errors: `%p`, an unknown conversion, a value of the wrong type, a text of more than 4 MiB.
---@param format string
---@param ... any
---@return string s
function string.format(format, ...) end

---Iterates over the matches of a pattern: its captures, or the whole match.
---Errors: As `string.find`.
---@param s string
---@param pattern string
---@param init? integer
---@return function iterator
function string.gmatch(s, pattern, init) end

---Replaces each match (at most `max`) by a text in which `%1` is a capture, by a table's field, or
---by what a function says; where these are false or nil the match stays.
---Errors: As `string.find`; a replacement that is no text; a text of more than 16 MiB.
---@param s string
---@param pattern string
---@param replacement string|number|table|function
---@param max? integer
---@return string s
---@return integer count
function string.gsub(s, pattern, replacement, max) end

---The number of bytes.
---@param s string
---@return integer length
function string.len(s) end

---ASCII letters in lower case.
---@param s string
---@return string s
function string.lower(s) end

---The captures of the first match, or the whole match if the pattern has none; nil without a match.
---Errors: As `string.find`.
---@param s string
---@param pattern string
---@param init? integer
---@return any ...
function string.match(s, pattern, init) end

---The text `n` times, with the separator between.
---Errors: A text of more than 16 MiB.
---@param s string
---@param n integer
---@param separator? string
---@return string s
function string.rep(s, n, separator) end

---The bytes in the other order.
---@param s string
---@return string s
function string.reverse(s) end

---The part from `i` to `j` (the end if left out); negative positions count from the end.
---@param s string
---@param i integer
---@param j? integer
---@return string s
function string.sub(s, i, j) end

---ASCII letters in upper case.
---@param s string
---@return string s
function string.upper(s) end
