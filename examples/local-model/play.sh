#!/bin/sh
# Talks to the model on this machine, then lets it drive a tool. The root is $AGENTRUN_ROOT, else a new directory.
set -eu
cd "$(dirname "$0")"
AGENTRUN_ROOT=${AGENTRUN_ROOT:-$(mktemp -d)}
AGENTRUN_CONFIG=$PWD/agentrun.toml
export AGENTRUN_ROOT AGENTRUN_CONFIG

say() { printf '\n$ agentrun %s\n' "$*"; agentrun "$@"; }

talk=$(agentrun new "talking to the model on this machine")
say send "$talk" "What is a file?"
say show "$talk"

# It is a small model: what it makes of the result, and whether it is content after four turns, is its own affair.
count=$(agentrun new "the same model with a tool" --agent counter)
say send "$count" "How many lines has agentrun.toml?" || echo "(exit $?)"
say show "$count"
calls=$(agentrun show "$count/1" --operations --json | grep -c '"type":"tool.finished"' || true)
printf '\nIt has called its tool %s times, and each call was one that the tool takes.\n' "$calls"

printf '\nIt is all in %s\n' "$AGENTRUN_ROOT"
