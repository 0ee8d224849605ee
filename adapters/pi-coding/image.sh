#!/bin/sh
# Run in the root of the image while it is made, without a network: unpacks the archives that ./fetch
# brought, makes the guest of them, plays one run with it for its compile cache, and removes what
# only this needed. Nothing of a package runs here but node, esbuild, and the guest itself.
set -eu
recipe=$(dirname -- "$(readlink -f -- "$0")")
[ "$recipe" = /opt/recipe ] || exit 2 # this removes things: only where mmdebstrap put it
pi=/opt/pi
modules=$recipe/node_modules

unpack() { # ARCHIVE DIRECTORY: without what only people and compilers read
  mkdir -p "$2"
  tar -xzf "$1" -C "$2" --strip-components=1 --no-same-owner --exclude='*.map' --exclude='*.d.ts' \
    --exclude='*.d.mts' --exclude='*.d.cts' --exclude='package/docs' --exclude='package/examples' \
    --exclude='package/src/*.ts' --exclude='package/include' --exclude='package/share'
}

mkdir -p "$pi/bin" "$pi/lib" "$pi/share/licenses"
grep -v '^#' "$recipe/packages.txt" | while read -r name version _; do
  archive=$recipe/archives/$(printf '%s' "$name" | sed 's/^@//; s,/,-,')-$version.tgz
  [ -e "$archive" ] || continue # of another kind of machine
  unpack "$archive" "$modules/$name"
  for text in "$modules/$name"/LICEN[SC]E*; do
    if [ -e "$text" ]; then
      mkdir -p "$pi/share/licenses/$name"
      cp "$text" "$pi/share/licenses/$name/"
    fi
  done
done
cp "$modules"/node-linux-*/bin/node "$pi/bin/node"
cp "$modules/@earendil-works/pi-coding-agent/package.json" "$recipe/guest/boot.cjs" "$recipe/guest/bake-run.cjs" "$pi/lib/"
# Pi's tool 'find' uses an option that Debian 12's fd does not have yet. Without it, ignore files count only
# in a repository.
if ! fdfind --no-require-git --version >/dev/null 2>&1; then
  cat >/usr/bin/fd <<'end'
#!/bin/sh
for word; do
  shift
  [ "$word" = --no-require-git ] || set -- "$@" "$word"
done
exec fdfind "$@"
end
  chmod 755 /usr/bin/fd
fi
# a program as people know it, for `bridle exec` and tests; the guest is started as bin/node lib/boot.cjs
[ -e /usr/bin/node ] || ln -s /opt/pi/bin/node /usr/bin/node
unset NODE_OPTIONS
unshare --net "$pi/bin/node" "$recipe/build.mjs" "$modules" "$pi/lib/guest.cjs"
unshare --net "$pi/bin/node" "$recipe/guest/bake.mjs" "$pi/lib"
rm -rf "$pi/lib/bake-run.cjs" "$recipe" /tmp/* /usr/share/doc /usr/share/man /usr/share/locale \
  /usr/share/info /var/cache/apt/* /var/cache/debconf/* /var/lib/apt/lists/*
