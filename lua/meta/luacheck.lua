-- Made by core/script/api_make.lua from core/script/api.def; not edited by hand.
-- The globals of a sandboxed state, for luacheck: stds.bridle in .luacheckrc.
return {
  read_globals = {
    "assert", "error", "getmetatable", "ipairs", "next", "pairs", "pcall", "rawequal", "rawget",
    "rawlen", "require", "select", "setmetatable", "tonumber", "tostring", "type", "_VERSION",
    string = { fields = {
      byte = {}, char = {}, find = {}, format = {}, gmatch = {}, gsub = {}, len = {}, lower = {},
      match = {}, rep = {}, reverse = {}, sub = {}, upper = {}
    } },
    table = { fields = {
      concat = {}, insert = {}, pack = {}, remove = {}, sort = {}, unpack = {}
    } },
    math = { fields = {
      abs = {}, ceil = {}, floor = {}, fmod = {}, huge = {}, max = {}, maxinteger = {}, min = {},
      mininteger = {}, modf = {}, pi = {}, sqrt = {}, tointeger = {}, type = {}, ult = {}
    } },
    utf8 = { fields = {
      char = {}, charpattern = {}, codepoint = {}, codes = {}, len = {}, offset = {}
    } },
    json = { fields = {
      array = {}, decode = {}, encode = {}, is_array = {}, null = {}
    } },
  },
}
