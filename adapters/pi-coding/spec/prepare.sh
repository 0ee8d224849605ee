#!/bin/sh
# Makes once what the tests of this adapter share: the image, its files outside of a sandbox, Pi as its
# authors ship it (for what it would do), and a guest of clients of npm. Started by ctest before them.
#
# Usage: prepare.sh CACHE BIN RECIPE
set -eu
cache=$1 bin=$2 recipe=$3
here=$(dirname -- "$(readlink -f -- "$0")")
mkdir -p "$cache"
exec 9>"$cache/lock"
flock 9

# done_before NAME FILE...: whether NAME was made of these files; if not, marks it as not made.
done_before() {
  name=$1
  shift
  key=$(cat "$@" | sha256sum | cut -c 1-64)
  [ "$(cat "$cache/$name.key" 2>/dev/null || true)" != "$key" ] || return 0
  rm -f "$cache/$name.key"
  return 1
}

if ! done_before image "$recipe"; then
  rm -rf "$cache/state" "$cache/root"
  mkdir -m 700 "$cache/state"
  BRIDLE_STATE_DIR=$cache/state "$bin/bridle" image build pi-coding
  fsck.erofs --extract="$cache/root" "$cache"/state/images/*.erofs >/dev/null
  printf '%s' "$key" >"$cache/image.key"
fi

if ! done_before rest "$0" "$here/packages.txt" "$here/clients.mjs" "$here/../packages.txt"; then
  archives=$cache/archives modules=$cache/modules
  rm -rf "$cache/pi" "$modules" "$archives"
  mkdir "$archives" "$modules"
  mkdir -p "$cache/pi/node_modules/jiti"
  "$here/../fetch" "$archives"
  "$here/../fetch" "$archives" "$here/packages.txt"
  tar -xzf "$archives"/earendil-works-pi-coding-agent-*.tgz -C "$cache/pi" --strip-components=1 --no-same-owner \
    package/package.json package/dist/bundle package/dist/modes
  tar -xzf "$archives"/jiti-*.tgz -C "$cache/pi/node_modules/jiti" --strip-components=1 --no-same-owner
  # only what the two clients and esbuild are
  grep -E '^(openai|undici|@anthropic-ai/sdk|standardwebhooks|fast-sha256|@stablelib/base64|@esbuild/[^ ]*) ' \
    "$here/../packages.txt" | while read -r name version _; do
    archive=$archives/$(printf '%s' "$name" | sed 's/^@//; s,/,-,')-$version.tgz
    [ -e "$archive" ] || continue # of another kind of machine
    mkdir -p "$modules/$name"
    tar -xzf "$archive" -C "$modules/$name" --strip-components=1 --no-same-owner \
      --exclude='*.map' --exclude='*.d.ts' --exclude='*.d.mts' --exclude='package/src'
  done
  env NODE_PATH="$modules" "$(echo "$modules"/@esbuild/linux-*/bin/esbuild)" "$here/clients.mjs" --bundle \
    --platform=node --format=cjs --log-level=warning --outfile="$cache/clients.cjs"
  rm -rf "$archives" "$modules"
  printf '%s' "$key" >"$cache/rest.key"
fi
