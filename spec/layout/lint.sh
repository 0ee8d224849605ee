#!/bin/sh
# Run one linter over every file of its kind. The files are found anew each time, so that a new one
# cannot be forgotten; finding none is a failure. Usage: lint.sh clang-format|luacheck|shellcheck
# Status 77: the linter is not installed. Only who works on Bridle needs one (vendor/*-dev.txt);
# .ci/run installs all three and fails without them.
set -eu
cd "$(dirname "$0")/../.."

# All files of ours: no build output, no version control.
ours() {
    find . \( -name .git -o -path ./build -o -name node_modules \) -prune -o -type f "$@" -print
}

shell_scripts() {
    ours \( -name '*.sh' -o ! -name '*.*' -o -path './.ci/*' \) | while IFS= read -r f; do
        if head -c 64 "$f" | head -n 1 | grep -aEq '^#!.*[/ ](ba|da)?sh( |$)'; then
            printf '%s\n' "$f"
        fi
    done
}

case "${1:-}" in
clang-format) set -- clang-format --dry-run -Werror --style=file && files=$(ours -name '*.[ch]') ;;
luacheck) set -- luacheck --quiet --no-color && files=$(ours -name '*.lua') ;;
shellcheck) set -- shellcheck && files=$(shell_scripts) ;;
*)
    echo "lint.sh: '${1:-}' is not a linter; nothing was checked. Usage: lint.sh clang-format|luacheck|shellcheck" >&2
    exit 2
    ;;
esac
if ! command -v "$1" >/dev/null; then
    echo "lint.sh: '$1' is not installed, nothing was checked; './bridle install-dev' installs it"
    exit 77
fi
if [ -z "$files" ]; then
    echo "lint.sh: found no file for '$1'; nothing was checked" >&2
    exit 1
fi
echo "$1: $(printf '%s\n' "$files" | wc -l) files"
printf '%s\n' "$files" | tr '\n' '\0' | xargs -0 "$@"
