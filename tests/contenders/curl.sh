#!/usr/bin/env bash
# A contender with nothing but curl: acquires, stays inside for a while, and releases, again and again. Ends with its
# process group.
#
# usage: curl.sh SOCKET WITNESS KIND LIMIT NAME
set -euo pipefail
socket=$1 witness=$2 kind=$3 limit=$4 name=$5

call() { curl --silent --show-error --fail --unix-socket "$1" --header "content-type: application/json" --data "$3" "http://localhost$2"; }
field() { sed -n "s/.*\"$1\":\"\?\([^\",}]*\).*/\1/p" <<<"$2"; }
tell() { call "$witness" "$1" "{\"kind\": \"$kind\", \"name\": \"$name\"${2:-}}"; }

# The session lives while the process that registered lives, which goes on with a stream that has no end.
exec {stream}< <(exec curl --silent --show-error --unix-socket "$socket" --header "content-type: application/json" --write-out '\n' \
    --data "{\"name\": \"$name\", \"project\": \"mixed\", \"tether\": \"process\"}" "http://localhost/v1/register" \
    --next --silent --no-buffer --unix-socket "$socket" "http://localhost/v1/observe?kind=leader&name=nothing")
read -r registered <&"$stream"
session=$(field session "$registered")

what=", \"name\": \"mixed\""
[[ $kind != master ]] || what=
[[ $kind != semaphore ]] || what+=", \"limit\": $limit"
while :; do
    granted=$(call "$socket" /v1/acquire "{\"session\": \"$session\", \"kind\": \"$kind\"$what, \"wait\": \"block\"}")
    tell /enter ", \"pid\": $$, \"token\": \"$(field token "$granted")\""
    sleep "0.0$((RANDOM % 20 + 10))"
    tell /leave
    call "$socket" /v1/release "{\"session\": \"$session\", \"hold\": \"$(field hold "$granted")\"}" >/dev/null
done
