#!/bin/sh
# With standard input, output and error closed, as some supervisors have it: the exit code is all that is told, and the
# report is in the tree. No file of the tree ever gets the number of a closed descriptor.
#
#     ./silent.sh nightly "analyse the evening"; echo $?; agentrun show nightly --report
set -eu

exec <&- >&- 2>&-
agentrun send "$1" "$2"
