#!/bin/sh
# The guest of shell-example: reads one run frame, asks the model one question where there is a curl, and
# answers one frame (docs/run-frame.md). Needs sh, dd, od, head, sed, ls, wc and tr: busybox has them all.
set -eu
LC_ALL=C
export LC_ALL

# A frame: four bytes of length, big endian, then JSON.
# shellcheck disable=SC2046
set -- $(dd bs=1 count=4 2>/dev/null | od -An -tu1)
json=$(head -c $((((($1 * 256) + $2) * 256 + $3) * 256 + $4)))

# The text behind a key, as JSON spells it. A quote inside of a text is written \", so that no text can
# look like a key.
field() {
    printf '%s' "$json" | sed -nE 's/.*"'"$1"'":"(([^"\\]|\\.)*)".*/\1/p'
}

run=$(field runId)
socket=$(printf '%s' "$json" | sed -nE 's/.*"provider":\{[^}]*"socket":"([^"]*)".*/\1/p')
token=$(field token)
model=$(printf '%s' "$json" | sed -nE 's/.*"model":\{[^}]*"id":"([^"]*)".*/\1/p')
revision=$(printf '%s' "$json" | sed -nE 's/.*"revision":([0-9]*).*/\1/p')

# The names of the files, not of hidden ones, without what would have to be escaped.
# shellcheck disable=SC2012
files=$(ls /workspace | tr '\n' ' ' | tr -d '"\\[:cntrl:]')
count=0
status=completed
if command -v curl >/dev/null; then
    count=1
    body='{"model":"'$model'","max_tokens":1024,"stream":false,"messages":[{"role":"user","content":"'$(field prompt)'\n\nFiles: '$files'"}]}'
    if reply=$(printf '%s' "$body" | curl -sS --fail --unix-socket "$socket" -H 'Content-Type: application/json' \
        -H "Authorization: Bearer $token" --data-binary @- http://localhost/v1/chat/completions); then
        json=$reply
        text=$(field content)
    else
        text='the provider refused'
        status=failed
    fi
else
    text="there is no curl in this image, so the model was not asked; files: $files"
fi

tools='[]'
if [ "$count" -gt 0 ]; then
    tools='[{"name":"list","status":"ok","count":'$count'}]'
fi
result='{"runId":"'$run'","status":"'$status'","adapter":{"id":"shell-example","revision":'$revision'},"session":{},"artifact":{"kind":"text","text":"'$text'"},"tools":'$tools'}'
n=$(printf '%s' "$result" | wc -c)
# shellcheck disable=SC2059
printf "$(printf '\\%03o\\%03o\\%03o\\%03o' $((n >> 24 & 255)) $((n >> 16 & 255)) $((n >> 8 & 255)) $((n & 255)))"
printf '%s' "$result"
