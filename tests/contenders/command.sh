#!/usr/bin/env bash
# What `tenure run` runs as a contender: stays inside for a while.
#
# usage: command.sh WITNESS KIND NAME
set -euo pipefail
own="\"kind\": \"$2\", \"name\": \"$3\""
tell() { curl --silent --show-error --fail --unix-socket "$1" --header "content-type: application/json" --data "$3" "http://localhost$2"; }
tell "$1" /enter "{$own, \"pid\": $$, \"token\": \"$TENURE_TOKEN\"}"
sleep "0.0$((RANDOM % 20 + 10))"
tenure held
tell "$1" /leave "{$own}"
