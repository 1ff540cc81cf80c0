#!/bin/sh
# Begins a run in the background and prints a line for each call of a tool as it ends. Whoever reads only the beginning
# (`./follow.sh ... | head -n 1`) stops nothing: the run goes on. The exit code says how the run ended.
#
#     ./follow.sh @last "check the stock"
set -eu

run=$(agentrun send "$1" "$2" --detach)
agentrun show -f "$run" --json |
    jq -r --unbuffered 'select(.type == "tool.finished") | [.payload.operationId, .payload.status] | @tsv' || true
agentrun wait "$run" > /dev/null
