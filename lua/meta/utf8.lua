---@meta _
-- Made by core/script/api_make.lua from core/script/api.def; not edited by hand.

---Texts as UTF-8.
utf8 = {}

---The text of these characters.
---@param ... integer
---@return string s
function utf8.char(...) end

---A pattern for one character.
---@type string
utf8.charpattern = nil

---The characters that begin between the byte positions `i` and `j`, as numbers.
---Errors: A text that is not UTF-8; a position outside of it.
---@param s string
---@param i? integer
---@param j? integer
---@param lax? boolean
---@return integer ...
function utf8.codepoint(s, i, j, lax) end

---Iterates over the characters: byte position and number.
---Errors: In the loop: a text that is not UTF-8.
---@param s string
---@param lax? boolean
---@return function iterator
---@return string s
---@return integer start
function utf8.codes(s, lax) end

---The number of characters; nil and the position of the first byte that is wrong.
---@param s string
---@param i? integer
---@param j? integer
---@param lax? boolean
---@return integer|nil n
---@return integer? position
function utf8.len(s, i, j, lax) end

---The byte position of the `n`-th character from position `i` on.
---@param s string
---@param n integer
---@param i? integer
---@return integer|nil position
function utf8.offset(s, n, i) end
