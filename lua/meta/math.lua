---@meta _
-- Made by core/script/api_make.lua from core/script/api.def; not edited by hand.

---There is no randomness and no clock: a file gives the same result each time.
math = {}

---The absolute value.
---@param x number
---@return number y
function math.abs(x) end

---The smallest integer that is not less.
---@param x number
---@return number y
function math.ceil(x) end

---The largest integer that is not more.
---@param x number
---@return number y
function math.floor(x) end

---The remainder that has the sign of `x`.
---Errors: An integer divided by 0.
---@param x number
---@param y number
---@return number z
function math.fmod(x, y) end

---Infinity.
---@type number
math.huge = nil

---The largest argument, by `<`.
---@param x any
---@param ... any
---@return any y
function math.max(x, ...) end

---The largest integer.
---@type integer
math.maxinteger = nil

---The smallest argument, by `<`.
---@param x any
---@param ... any
---@return any y
function math.min(x, ...) end

---The smallest integer.
---@type integer
math.mininteger = nil

---The whole and the fractional part.
---@param x number
---@return number whole
---@return number rest
function math.modf(x) end

---The circle's number.
---@type number
math.pi = nil

---The square root.
---@param x number
---@return number y
function math.sqrt(x) end

---The value as an integer, or nil if it is none.
---@param x any
---@return integer|nil n
function math.tointeger(x) end

---"integer", "float", or nil for what is no number.
---@param x any
---@return string|nil kind
function math.type(x) end

---Less than, as unsigned integers.
---@param m integer
---@param n integer
---@return boolean less
function math.ult(m, n) end
