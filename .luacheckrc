std = "lua54"
max_line_length = 110
codes = true
exclude_files = { "build/", "lua/meta/" }
-- what runs in a sandboxed state has what core/script/api.def says
stds.bridle = dofile("lua/meta/luacheck.lua")
files["lua/bridle/"] = { std = "bridle" }
files["policy/"] = { std = "bridle" }
files["profiles/"] = { std = "bridle" }
files["spec/"] = { std = "+busted" }
files["policy/*_spec.lua"] = { std = "lua54+busted" }
files["policy/cookbook/*_spec.lua"] = { std = "lua54+busted" }
files["adapters/*/adapter_spec.lua"] = { std = "lua54+busted" }
