#!/bin/sh
# Has a text from standard input looked over. The report goes to standard output, everything else to standard error,
# and the exit code is that of `agentrun send`.
#
#     git diff | ./review.sh > review.md
set -eu

session=$(agentrun new "review")
agentrun send "$session" "Review this:" -
