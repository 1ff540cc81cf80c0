#!/bin/sh
# What waits for somebody, in all sessions: session, kind, and what is asked.
#
#     ./waiting.sh | column -t -s "$(printf '\t')"
set -eu

agentrun ls --status waiting_input --limit 1000 --json |
    jq -r '[.session.sessionId, .run.waitingFor.kind, .run.waitingFor.text] | @tsv'
