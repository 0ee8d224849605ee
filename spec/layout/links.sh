#!/bin/bash
# What each program must not contain: the last column of the table of programs in the design. A
# library counts whether it comes as a shared object (directly or through another one) or was
# linked statically. Usage: links.sh DIRECTORY-OF-PROGRAMS
set -euo pipefail
export LC_ALL=C
bin=${1:?usage: links.sh DIRECTORY-OF-PROGRAMS}
failures=0

fail() {
    echo "not ok - $*"
    failures=$((failures + 1))
}

# Name of the shared object, and symbols that only the library itself defines.
declare -A soname=(
    [lua]='liblua' [jansson]='libjansson' [websockets]='libwebsockets' [curl]='libcurl'
    [sqlite]='libsqlite3' [openssl]='lib(ssl|crypto)' [seccomp]='libseccomp'
    [treesitter]='libtree-sitter'
)
declare -A symbol=(
    [lua]='luaL?_[a-z]+' [jansson]='json_(loadb|loads|decref|delete|object|array)'
    [websockets]='lws_[a-z_]+' [curl]='curl_easy_[a-z]+' [sqlite]='sqlite3_[a-z0-9_]+'
    [openssl]='(SSL|EVP|OPENSSL|CRYPTO)_[A-Za-z0-9_]+' [seccomp]='seccomp_[a-z_]+'
    [treesitter]='ts_(parser|tree|node|language)_[a-z_]+|tree_sitter_[a-z_]+'
)

# grep reads to the end here and below: with -q it would end the program before it, which counts as
# a failure of the pipe.
is_static() {
    local headers
    headers=$(readelf -lW "$1" && readelf -dW "$1") || return 1
    ! grep -Eq 'INTERP|NEEDED' <<<"$headers"
}

# Everything that the loader would map.
shared_objects() {
    if ! is_static "$1"; then
        ldd "$1" | awk '{print $1}'
    fi
}

# Why PROGRAM contains LIBRARY; empty if it does not.
contains() {
    shared_objects "$1" | grep -E "^${soname[$2]}[-.0-9]" || true
    nm --defined-only "$1" 2>/dev/null | awk '{print $NF}' | grep -Ex -m 3 "${symbol[$2]}" || true
}

must_not() {
    local program=$1 found
    shift
    if [ ! -x "$bin/$program" ]; then
        fail "$program: not built in '$bin', so nothing is known about it"
        return
    fi
    if ! nm --defined-only "$bin/$program" 2>/dev/null | grep ' main$' >/dev/null; then
        fail "$program: has no symbols; what it links statically cannot be seen"
        return
    fi
    for library in "$@"; do
        found=$(contains "$bin/$program" "$library")
        if [ -n "$found" ]; then
            fail "$program must not link $library, but has ${found//$'\n'/ }"
        else
            echo "ok - $program does not link $library"
        fi
    done
}

# The probe itself must be able to find each library where it belongs.
must() {
    if [ -n "$(contains "$bin/$1" "$2")" ]; then
        echo "ok - control: $1 links $2"
    else
        fail "control: $2 was not found in $1, where it belongs; the other answers prove nothing"
    fi
}

# Only these shared objects, and the runtimes of sanitizers and coverage.
only() {
    local program=$1 extra
    shift
    extra=$(shared_objects "$bin/$program" | grep -Evx \
        "linux-vdso\.so\.1|.*/ld-linux[^/]*|lib(c|m|gcc_s|dl|pthread|rt|asan|ubsan|stdc\+\+)\.so\.[0-9]+|$1" || true)
    if [ -n "$extra" ]; then
        fail "$program must link nothing but its own, but has ${extra//$'\n'/ }"
    else
        echo "ok - $program links nothing but its own"
    fi
}

privileged=(lua jansson websockets curl sqlite openssl treesitter)
must_not bridled "${privileged[@]}"
must_not bridle-launch "${privileged[@]}"
must_not bridle-session lua sqlite curl websockets treesitter
# its parsers and nothing else: docs/decisions/0070-libraries-of-bridle-script.md. Shell strings are
# a model's, and taken apart there alone: docs/decisions/0072-the-shell-grammar.md
must_not bridle-script websockets curl sqlite openssl
only bridle-script 'liblua5\.4\.so\.0|libjansson\.so\.4|libyaml-0\.so\.2|libtree-sitter\.so\.0[.0-9]*'
must_not bridle-broker lua sqlite curl treesitter
must_not bridle-egress lua jansson sqlite websockets treesitter
must_not bridle-audit lua curl websockets treesitter
must_not bridle-gateway lua sqlite curl openssl websockets treesitter
# it parses what anybody sends before TLS is done, and has nothing else that could be wrong
must_not bridle-tls lua jansson websockets curl sqlite seccomp treesitter
must_not bridle-image "${privileged[@]}"
must_not bridle sqlite seccomp treesitter lua
must_not bridle-init "${privileged[@]}"
if [ -x "$bin/bridle-init" ] && ! is_static "$bin/bridle-init"; then
    fail "bridle-init must not need a shared library, but has $(shared_objects "$bin/bridle-init")"
fi

must bridle-script lua
must bridle-script treesitter
must bridle-session jansson
must bridle-egress curl
must bridle-audit sqlite
must bridle-tls openssl

# The broker carries the requests and must not know where a key would come from.
if grep -aq 'OPENAI_API_KEY' "$bin/bridle-broker"; then
    fail "bridle-broker names the variable of a key"
elif ! grep -aq 'bridle-broker' "$bin/bridle-broker"; then
    fail "control: bridle-broker does not even contain its own name"
fi

echo "$failures failures"
[ "$failures" -eq 0 ]
