#!/usr/bin/env bash
# soak.sh [SECONDS]: launches, for ten minutes if nothing else is said, half of the time through one
# launcher and half of it with `bridle exec`, and compares what there is before and after: processes,
# mounts, loop devices, cgroups, files. Any difference fails. As root, since that has most to leave
# behind. BRIDLE_BIN: the programs, with the tests built beside them; else build/release/bin or
# build/dev/bin of this clone.
set -euo pipefail

seconds=${1:-600}
source=$(dirname "$(readlink -f "$0")")/../..
bin=${BRIDLE_BIN:-}
for dir in "$source/build/release/bin" "$source/build/dev/bin"; do
  if [ -z "$bin" ] && [ -x "$dir/bridle" ] && [ -x "$dir/../tests/soak" ]; then bin=$dir; fi
done
if [ ! -x "$bin/bridle" ] || [ ! -x "$bin/../tests/soak" ]; then
  echo "soak.sh: there is no 'bridle' with its tests in '${bin:-$source/build}'; nothing was started. Build" \
    'the tests (cmake --preset dev && cmake --build --preset dev), or set BRIDLE_BIN' >&2
  exit 2
fi
bin=$(readlink -f "$bin")

# In a pid and a mount namespace of its own, with an empty /tmp: what else the machine does is not
# counted.
if [ "${2:-}" != inside ]; then
  if [ "$(id -u)" != 0 ]; then
    echo 'soak.sh: only root can leave everything behind; nothing was started. Run it as root' >&2
    exit 2
  fi
  dir=$(mktemp -d /tmp/bridle-soak-XXXXXX)
  chmod 1777 "$dir"
  status=0
  SOAK_DIR=$dir unshare --mount --pid --fork --mount-proc --kill-child "$0" "$seconds" inside || status=$?
  rm -rf "$dir"
  exit "$status"
fi
# the programs first: they may lie below /tmp themselves
mkdir "$SOAK_DIR/programs"
mount --bind "$(dirname "$bin")" "$SOAK_DIR/programs"
mount --rbind "$SOAK_DIR" /tmp
bin=/tmp/programs/$(basename "$bin")
export BRIDLE_STATE_DIR=/tmp/soak/state
mkdir -p /tmp/soak/workspace/src
chown -R 1000:1000 /tmp/soak/workspace
cd /tmp/soak
cat >policy.lua <<'LUA'
local policy = require "bridle.policy"
return policy.bundle { api = 1, name = "soak", rules = {
  policy.allow { id = "true", action = "process.exec", command = "true" },
} }
LUA
cat >task.yaml <<'YAML'
id: soak
title: t
goal: g
acceptance: [a]
allowed_paths: [src/**]
permissions: {}
delivery: {type: none}
YAML

pidns=$(readlink /proc/self/ns/pid)
pidns=${pidns//[!0-9]/}

# Loop devices on a file of ours; the kernel names it as the host sees it.
loops() { cat /sys/block/loop*/loop/backing_file 2>/dev/null | grep -c -e bridle-rig -e "$SOAK_DIR" || true; }

look() {
  echo "processes of bridle: $(cat /proc/[0-9]*/comm 2>/dev/null | grep -c '^\.\?bridle' || true)"
  echo "mounts: $(wc -l </proc/self/mountinfo)"
  echo "loop devices: $(loops)"
  echo "cgroups: $(find /sys/fs/cgroup -type d -name "bridle.$pidns.*" 2>/dev/null | wc -l)"
  echo "files in /tmp: $(find /tmp -path /tmp/soak -prune -o -path /tmp/programs -prune -o -print | wc -l)"
  echo "files of the state: $(find state ! -name '*.db-*' | wc -l)"
  echo "files of the workspace: $(find workspace | wc -l)"
}

once() { "$bin/bridle" exec -C workspace -p policy.lua task.yaml -- true >out.txt 2>&1 </dev/null; }

"$bin/bridle" activate run-v1 >out.txt 2>&1 || { cat out.txt; exit 1; }
once || { cat out.txt; exit 1; } # it makes the store
look >before.txt

half=$(((seconds + 1) / 2))
BRIDLE_BIN=$bin BRIDLE_SOAK_SECONDS=$half "$bin/../tests/soak" >launcher.txt 2>&1 || { cat launcher.txt; exit 1; }
runs=0
end=$((SECONDS + half))
while [ "$SECONDS" -lt "$end" ]; do
  once || { cat out.txt; exit 1; }
  runs=$((runs + 1))
done
# the kernel takes a loop device or a cgroup that was given up off its lists a little later
for _ in $(seq 50); do
  look >after.txt
  if cmp -s before.txt after.txt; then break; fi
  sleep 0.1
done

grep -E '^(launches|descriptors|memory)' launcher.txt
echo "runs of bridle exec: $runs"
paste -d: before.txt after.txt | awk -F: '{ printf "%s: %d before, %d after\n", $1, $2, $4 }'
cmp -s before.txt after.txt || { echo 'soak.sh: something was left behind' >&2; exit 1; }
