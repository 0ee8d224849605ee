#!/bin/sh
# Makes once what the tests of the Agent Client Protocol share: node and the clients of packages.txt,
# none of whose scripts is run. Started by ctest before them.
#
# Usage: prepare.sh CACHE
set -eu
cache=${1:?usage: prepare.sh CACHE}
here=$(dirname -- "$(readlink -f -- "$0")")
mkdir -p "$cache"
exec 9>"$cache/lock"
flock 9
key=$(cat "$0" "$here/packages.txt" | sha256sum | cut -c 1-64)
[ "$(cat "$cache/key" 2>/dev/null || true)" != "$key" ] || exit 0

modules=$cache/node_modules archives=$cache/archives
rm -rf "$cache/key" "$cache/node" "$modules" "$archives"
mkdir "$modules" "$archives"
"$here/../../adapters/pi-coding/fetch" "$archives" "$here/packages.txt"
grep -v '^#' "$here/packages.txt" | while read -r name version _; do
  archive=$archives/$(printf '%s' "$name" | sed 's/^@//; s,/,-,')-$version.tgz
  [ -e "$archive" ] || continue # of another kind of machine
  case $name@$version in
    node-linux-*)
      mkdir -p "$cache/node"
      tar -xzf "$archive" -C "$cache/node" --strip-components=1 --no-same-owner package/bin/node
      continue
      ;;
    @agentclientprotocol/sdk@1.*) to=$modules/acpx/node_modules/$name ;;
    *) to=$modules/$name ;;
  esac
  mkdir -p "$to"
  tar -xzf "$archive" -C "$to" --strip-components=1 --no-same-owner \
    --exclude='*.map' --exclude='*.d.ts' --exclude='*.d.mts' --exclude='*.d.cts'
done
rm -rf "$archives"
printf '%s' "$key" >"$cache/key"
