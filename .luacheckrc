std = "lua54"
max_line_length = 110
codes = true
exclude_files = { "build/" }
files["spec/"] = { std = "+busted" }
