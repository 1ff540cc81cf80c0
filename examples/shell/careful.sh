#!/bin/sh
# Under `set -e` a run that waits (5) or was cancelled (3) would end the script: the code is taken first.
#
#     ./careful.sh @last "analyse the evening" report.md
set -eu

code=0
agentrun send "$1" "$2" > "$3" || code=$?
case $code in
0) echo "the report is in $3" ;;
3) echo "somebody stopped it" ;;
5) agentrun show "$1" --json | jq -r '"it asks: \(.runs[0].waitingFor.text)"' ;;
esac
exit "$code"
