#!/bin/sh
# Asks the same about each line of standard input, four at a time. Each line has a session of its own, and its report
# goes to SESSION.md. xargs exits with 123 if one of them did not complete.
#
#     printf '%s\n' north south east | ./many.sh "How were the sales there?"
set -eu

tr '\n' '\0' | xargs -0 -n 1 -P 4 sh -c '
    session=$(agentrun new "$2") && agentrun send "$session" "$1 $2" > "$session.md"
' sh "$1"
