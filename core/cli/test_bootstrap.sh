#!/bin/bash
# The way in, ./bridle, in a tree of its own with a ninja that plays what the test wrote: what it says
# and what it starts. Usage: test_bootstrap.sh SOURCE-DIRECTORY
set -euo pipefail
source=${1:?usage: test_bootstrap.sh SOURCE-DIRECTORY}
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
tree=$dir/tree
failures=0

mkdir -p "$tree"/{core,lua,policy,profiles,share,cmake,build/release/bin} "$dir/bin" "$dir/tmp"
cp "$source/bridle" "$tree/bridle"
touch "$tree/CMakeLists.txt" "$tree/CMakePresets.json" "$tree/build/release/build.ninja"
printf '#!/bin/sh\necho "the program: $*"\n' >"$tree/build/release/bin/bridle"
printf '#!/bin/sh\nexit 0\n' >"$dir/bin/cmake"
# shellcheck disable=SC2016 # the script's own words
printf '#!/bin/sh\ncat "%s/play"\nexit "$(cat "%s/code")"\n' "$dir" "$dir" >"$dir/bin/ninja"
chmod 755 "$dir" "$tree/build/release/bin/bridle" "$dir"/bin/*
chmod 1777 "$dir/tmp"

# expect CODE TEXT-ON-BOTH COMMAND...
expect() {
    local want=$1 text=$2 said code=0
    shift 2
    said=$(PATH="$dir/bin:$PATH" TMPDIR="$dir/tmp" "$@" 2>&1 </dev/null) || code=$?
    if [ "$code" != "$want" ] || [ "$said" != "$text" ]; then
        echo "not ok - '$*': exit $code, not $want; it said: $said"
        failures=$((failures + 1))
    fi
    if [ -n "$(ls -A "$dir/tmp")" ]; then
        echo "not ok - '$*' left a file behind"
        failures=$((failures + 1))
    fi
}

user=(setpriv --reuid 1000 --regid 1000 --clear-groups)
built="bridle: building (the first time takes about a minute)"
echo 0 >"$dir/code"

# up to date: nothing is said; the check for new files is no work
printf '[0/2] Re-checking globbed directories...\nninja: no work to do.\n' >"$dir/play"
expect 0 'the program: demo -p x' "$tree/bridle" demo -p x

printf '[0/2] Re-checking globbed directories...\n[1/2] Building\n[2/2] Linking\n' >"$dir/play"
expect 0 "$built"$'\n''the program: demo' "$tree/bridle" demo

# a failure shows what was said, and starts nothing
echo 1 >"$dir/code"
expect 1 "$built"$'\n'"$(cat "$dir/play")"$'\n''bridle: the build failed; nothing was run' \
    "$tree/bridle" demo

# who may not write to the build: ninja cannot run, and need not where nothing is newer
if [ "$(id -u)" = 0 ]; then
    expect 0 'the program: demo' "${user[@]}" "$tree/bridle" demo
    touch -d '+1 hour' "$tree/core/new.c"
    expect 1 "bridle: '$tree/build/release' is out of date and belongs to somebody else, who may say './bridle build'; nothing was run" \
        "${user[@]}" "$tree/bridle" demo
fi
[ "$failures" = 0 ] && echo ok
