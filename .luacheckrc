std = "lua54"
max_line_length = 110
codes = true
exclude_files = { "build/" }
files["spec/"] = { std = "+busted" }
-- what bridle-script puts into the environment of an adapter
files["lua/bridle/adapter/"] = { read_globals = { "json" } }
