#!/bin/bash
# A recipe says when to use it and what it does not do, is in the list of docs/cookbook.md, compiles
# without a warning, and has a spec; that one is run, and measured, by spec.policy_cookbook_NAME.
# Usage: recipe.sh BIN SOURCE NAME
set -euo pipefail
export LC_ALL=C PATH=$1:$PATH
source=$2 name=$3
file=$source/policy/cookbook/$name.lua
top=$(mktemp -d)
trap 'rm -rf "$top"' EXIT
export BRIDLE_STATE_DIR=$top/state XDG_CONFIG_HOME=$top HOME=$top
mkdir "$top/workspace"
cd "$top/workspace"

fail() {
    echo "$name: $*" >&2
    exit 1
}

head -n 1 "$file" | grep -q '^-- When: ' || fail "the first line does not say when to use it"
sed '/^--/!Q' "$file" | grep -q '^-- Not: ' || fail "the comment on top does not say what it does not do"
grep -q "^| \`$name\` | [a-z\`]" "$source/docs/cookbook.md" || fail "docs/cookbook.md does not list it"
[ -s "${file%.lua}_spec.lua" ] || fail "it has no spec"
bridle policy check --strict "$file"
