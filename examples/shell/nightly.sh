#!/bin/sh
# For cron, which has no terminal and hardly any environment. Run twice in a night it asks once, by the key. What it
# prints is mailed: the report, or what somebody has to do.
#
#     15 3 * * *  AGENTRUN_ROOT=/srv/agents PATH=/srv/agents/bin:/usr/bin:/bin /srv/agents/nightly.sh
set -u

agentrun show nightly > /dev/null 2>&1 || agentrun new "last night" --id nightly > /dev/null || exit
agentrun send nightly "Review last night." --key "${1:-$(date +%F)}"
code=$?
case $code in
0) ;;
5) echo "It has a question. See: agentrun show nightly" ;;
6) agentrun recover ;; # nobody drives the run: its executor was killed, or the machine went down
7) echo "The run before is not over. See: agentrun show nightly" ;;
*) echo "It ended with $code. See: agentrun show nightly" ;;
esac
exit "$code"
