#!/bin/bash
# An installation of the build into a directory of its own works from there: the client finds
# bridled, bridled finds its programs, and a sandbox starts; what is not for users is not in it.
# Usage: install.sh BUILD
set -euo pipefail
export LC_ALL=C
build=${1:?usage: install.sh BUILD}
unset CDPATH
top=$(mktemp -d)
trap 'rm -rf "$top"' EXIT
chmod 755 "$top"
export DESTDIR=$top/dest BRIDLE_STATE_DIR=$top/state HOME=$top
failures=0

fail() {
    echo "not ok - $*"
    failures=$((failures + 1))
}

# run STATUS TEXT VERB...: ends so, and says so.
run() {
    local want=$1 text=$2 status=0 out
    shift 2
    out=$("$bridle" "$@" 2>&1 </dev/null) || status=$?
    if [[ " $want " != *" $status "* ]] || ! grep -qF -- "$text" <<<"$out"; then
        fail "bridle $*: status $status, not $want with '$text': $out"
    else
        echo "ok - bridle $*"
    fi
}

cmake --install "$build" --prefix /usr >"$top/log" || {
    cat "$top/log"
    exit 1
}
bridle=$DESTDIR/usr/bin/bridle

# Every program of the build but one, and nothing else.
(cd "$build/bin" && ls -- bridle*) | grep -vx bridle-bench >"$top/want"
ls -- "$DESTDIR/usr/libexec/bridle" >"$top/have"
diff "$top/want" "$top/have" || fail 'libexec/bridle holds other programs than the build'
[ "$(readlink "$bridle")" = ../libexec/bridle/bridle ] || fail 'bin/bridle does not lead to libexec'
for file in etc/apparmor.d/bridle usr/share/bash-completion/completions/bridle \
    usr/share/zsh/site-functions/_bridle usr/share/bridle/lua/meta/bridle-policy.lua \
    usr/share/bridle/policy/cookbook/mine.lua usr/lib/systemd/system/bridle.service \
    usr/lib/systemd/system/bridle.socket; do
    [ -s "$DESTDIR/$file" ] || fail "'$file' was not installed"
done
# The units: a program that is there, no placeholder, and, where systemd is, nothing that it doubts.
units=$DESTDIR/usr/lib/systemd/system
grep -q '@' "$units/bridle.service" && fail 'a placeholder is left in bridle.service'
start=$(sed -n 's/^ExecStart=\([^ ]*\) .*/\1/p' "$units/bridle.service")
[ -x "$DESTDIR/$start" ] || fail "bridle.service starts '$start', which is not there"
while read -r line; do
    case $line in
    '' | '#'* | '['*']' | [A-Z]*=*) ;;
    *) fail "no line of a unit: '$line'" ;;
    esac
done < <(cat "$units/bridle.service" "$units/bridle.socket")
if command -v systemd-analyze >/dev/null; then
    mkdir -p "$top/units"
    for unit in bridle.service bridle.socket; do
        sed -e "s,^ExecStart=,ExecStart=$DESTDIR," -e '/^Documentation=/d' \
            -e 's,^WorkingDirectory=.*,WorkingDirectory=/,' "$units/$unit" >"$top/units/$unit"
    done
    (cd "$top/units" && systemd-analyze verify ./bridle.service ./bridle.socket) >"$top/doubts" 2>&1 || :
    grep -F bridle. "$top/doubts" && fail 'systemd doubts the units'
fi
if [ -d "$build/man" ]; then
    for page in "$build"/man/*; do
        [ -s "$DESTDIR/usr/share/man/man${page##*.}/${page##*/}" ] || fail "no page '${page##*/}'"
    done
fi
# the profile names the place where the launcher lies
pattern=$(sed -n 's/^profile bridle-launch \([^ ]*\) .*/\1/p' "$DESTDIR/etc/apparmor.d/bridle")
case " $(eval "echo $pattern") " in # its alternatives are those of a shell
*' /usr/libexec/bridle/bridle-launch '*) ;;
*) fail "the AppArmor profile is for '$pattern'" ;;
esac
(
    cd "$DESTDIR" && find . -perm /6022 ! -type l
) >"$top/writable"
[ -s "$top/writable" ] && fail "set-id, or writable for others: $(cat "$top/writable")"

printf 'id: t\ntitle: t\ngoal: g\nacceptance: [a]\nallowed_paths: [src/**]\npermissions: {}\ndelivery: {type: none}\n' \
    >"$top/task.yaml"
run 0 'bridle ' --version
run 0 ': valid' validate "$top/task.yaml"
run '0 6' 'user namespaces' doctor
run 0 'fs.write-workspace' selftest --attack --list
run 1 'not part of an installation' bench
mv "$DESTDIR/usr/libexec/bridle/bridle-launch" "$top/" # control: doctor looks for it there
run 1 "'bridle-launch' is missing beside bridled" doctor
mv "$top/bridle-launch" "$DESTDIR/usr/libexec/bridle/"
if [ "$(id -u)" -eq 0 ]; then
    mkdir -p "$top/project/src"
    chown -R 1000:1000 "$top/project"
    printf 'return require("bridle.policy").bundle { api = 1, name = "t", rules = {\n%s\n} }\n' \
        'require("bridle.policy").allow { id = "echo", action = "process.exec", command = "echo *" }' \
        >"$top/policy.lua"
    run 0 'is activated' activate run-v1
    run 0 'hello' exec -C "$top/project" -p "$top/policy.lua" "$top/task.yaml" -- echo hello
    run 0 'fs.write-workspace' selftest --attack --only fs.write-workspace
fi

echo "$failures failures"
[ "$failures" -eq 0 ]
