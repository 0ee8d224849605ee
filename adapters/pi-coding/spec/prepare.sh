#!/bin/sh
# Makes once what the tests of this adapter share: the image, its files outside of a sandbox, Pi as its
# authors ship it (for what it would do), and clients of npm. Started by ctest before them.
#
# Usage: prepare.sh CACHE BIN RECIPE. CACHE/ready is there when all of it is.
set -eu
cache=$1 bin=$2 recipe=$3
here=$(dirname -- "$(readlink -f -- "$0")")
mkdir -p "$cache"
exec 9>"$cache/lock"
flock 9
key=$(cat "$recipe" "$here/prepare.sh" "$here/packages.txt" | sha256sum | cut -c 1-64)
[ "$(cat "$cache/ready" 2>/dev/null || true)" != "$key" ] || exit 0
rm -rf "$cache/ready" "$cache/state" "$cache/root" "$cache/pi" "$cache/modules" "$cache/archives"

mkdir -m 700 "$cache/state"
BRIDLE_STATE_DIR=$cache/state "$bin/bridle" image build pi-coding
fsck.erofs --extract="$cache/root" "$cache"/state/images/*.erofs >/dev/null

mkdir "$cache/archives" "$cache/pi" "$cache/modules"
"$here/../fetch" "$cache/archives"
"$here/../fetch" "$cache/archives" "$here/packages.txt"
tar -xzf "$cache"/archives/earendil-works-pi-coding-agent-*.tgz -C "$cache/pi" --strip-components=1 --no-same-owner \
  package/package.json package/dist/bundle package/dist/modes
mkdir -p "$cache/pi/node_modules/jiti"
tar -xzf "$cache"/archives/jiti-*.tgz -C "$cache/pi/node_modules/jiti" --strip-components=1 --no-same-owner
# Only what the two clients and esbuild are.
grep -E '^(openai|@anthropic-ai/sdk|standardwebhooks|fast-sha256|@stablelib/base64|@?esbuild[^ ]*) ' "$here/../packages.txt" |
  while read -r name version _; do
    archive=$cache/archives/$(printf '%s' "$name" | sed 's/^@//; s,/,-,')-$version.tgz
    [ -e "$archive" ] || continue # of another kind of machine
    mkdir -p "$cache/modules/$name"
    tar -xzf "$archive" -C "$cache/modules/$name" --strip-components=1 --no-same-owner \
      --exclude='*.map' --exclude='*.d.ts' --exclude='*.d.mts' --exclude='package/src'
  done
rm -rf "$cache/archives"
printf '%s' "$key" >"$cache/ready"
