#!/bin/sh
# Puts the text of two files into one prompt and keeps the report.
#
#     ./compare.sh week12.csv week13.csv report.md
set -eu

session=$(agentrun new "$1 and $2")
agentrun send "$session" "What has changed?" --file "$1" --file "$2" > "$3"
