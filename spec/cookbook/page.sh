#!/bin/bash
# The commands of docs/cookbook.md, as they stand there, in an empty directory; the policies that it
# names; and that it lists no recipe that there is not.
# Usage: page.sh BIN SOURCE
# shellcheck disable=SC2016 # backquotes of the page
set -euo pipefail
export LC_ALL=C PATH=$1:$PATH
source=$2 page=$2/docs/cookbook.md
top=$(mktemp -d)
trap 'rm -rf "$top"' EXIT
export BRIDLE_STATE_DIR=$top/state XDG_CONFIG_HOME=$top HOME=$top cookbook=$source/policy/cookbook
mkdir "$top/here"
cd "$top/here"

fail() {
    echo "$*" >&2
    exit 1
}
# is WANT SUBJECT... : what `bridle policy why` decides begins so.
is() {
    local want=$1 got
    shift
    got=$(bridle policy why "$@" | head -n 1)
    [ "${got%% *}" = "$want" ] || fail "bridle policy why $*: '$got', not $want"
}

sed -n '/^```sh$/,/^```$/p' "$page" | grep -v '^```' >"$top/commands"
grep -q 'policy test' "$top/commands" || fail "the page has no commands"
bash -e "$top/commands" >"$top/out" || fail "a command of the page fails: $(tail -n 5 "$top/out")"
grep -q '^deny  by operator:no-license' "$top/out" || fail "the edit of the page decides nothing"

list=$(sed -n 's/^| `\([a-z-]*\)` |.*/\1/p' "$page" | sort)
[ "$list" = "$( (cd "$source/policy" && ls -- *.lua cookbook/*.lua) | sed 's,.*/,,; s/\.lua$//' |
    grep -v '_spec$' | grep -vx -e denials -e harmless | sort)" ] || fail "the page lists others than there are: $list"

# by name on the command line
for name in default strict review-only ci denials harmless; do
    bridle policy check --strict -p "$name" >"$top/out"
    [ "$name" = harmless ] || is deny -p "$name" process.exec git push
done
is ask -p harmless process.exec git push
is allow -p default fs.write src/a
is ask -p strict fs.write src/a
is ask -p strict process.exec ls
is deny -p review-only fs.write src/a
is allow -p ci process.exec make test
mkdir ci strict.d # a directory is no policy
is allow -p ci process.exec ls
echo x >strict # a word that is both is neither
if bridle policy why -p strict process.exec ls >"$top/out" 2>"$top/err"; then fail "an ambiguous name was taken"; fi
grep -q "'strict' is a shipped policy and a file here; nothing was started" "$top/err" || fail "$(cat "$top/err")"
[ -s "$top/out" ] && fail "something was decided with an ambiguous name"
is ask -p "$source/policy/strict.lua" process.exec ls
for name in strcit Strict 'ci default' harmless_spec; do
    if bridle policy check -p "$name" >"$top/out" 2>"$top/err"; then fail "a name that is none was taken"; fi
    grep -q "'$name' does not exist: .*the shipped ones are default" "$top/err" || fail "$(cat "$top/err")"
done
echo ok
