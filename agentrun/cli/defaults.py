"""What commands take where their user says nothing, for their functions and for what `--help` shows of it."""

# How many sessions `ls` lists at the most.
LISTED = 20
# Why a run was cancelled, for the record.
CANCEL_REASON = "cancelled by the user"
