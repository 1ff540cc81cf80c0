"""Breaks one line at a time and checks that the tests notice: `make mutants`.

Each breakage is a bug that somebody could really make. It is applied to a copy of the project, the tests that should
turn red are run there, and a breakage that they let pass is named at the end. Give words to run only the breakages
whose name contains one of them: `python tests/mutants.py lock torn`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

PROJECT = Path(__file__).parents[1]
PAGES = ("README.md", "README.zh.md", "SECURITY.md", "CHANGELOG.md")
COPIED = (
    "agentrun",
    "tests",
    "examples",
    "docs",
    "tools",
    "pyproject.toml",
    "requirements-dev.lock",
    "Makefile",
    *PAGES,
)
# A breakage may well make a test wait for ever.
SECONDS_PER_TEST = 30


class Mutant(NamedTuple):
    """`old` stands exactly once in `file` and becomes `new`; one of `tests` (paths and pytest options) must fail."""

    name: str
    file: str
    old: str
    new: str
    tests: str


MUTANTS = [
    # The store: what is acknowledged lasts, and nobody else's bytes are touched.
    Mutant(
        "no lock",
        "store/locks.py",
        "            if not _lock_now(place.fd):\n                self._wait()\n",
        "",
        "tests/store/test_locks.py",
    ),
    Mutant(
        "a lock that the file system refuses is taken for had",
        "store/locks.py",
        "    except BlockingIOError:\n        return False\n    return True\n\n\ndef lock_holder",
        "    except OSError as error:\n        return not isinstance(error, BlockingIOError)\n    return True\n\n\n"
        "def lock_holder",
        "tests/faults/test_errors.py -k now_and_then",
    ),
    Mutant(
        "what belongs to another user is one's own",
        "store/disk.py",
        "if opened is None or (owned and os.fstat(opened.fd).st_uid != os.geteuid()):",
        "if opened is None:",
        "tests/store/test_tree.py -k another_user",
    ),
    Mutant(
        "records are not synced",
        "store/disk.py",
        '    getattr(os, "fdatasync", os.fsync)(fd)\n',
        "    pass\n",
        "tests/store/test_redo.py -k synced",
    ),
    Mutant(
        "a sync that failed is tried again",
        "store/disk.py",
        '    getattr(os, "fdatasync", os.fsync)(fd)\n',
        "    try:\n        os.fdatasync(fd)\n    except OSError:\n        os.fdatasync(fd)\n",
        "tests/store/test_log.py -k sync",
    ),
    # The two that a power cut alone shows; without root they cannot be noticed.
    Mutant(
        "no sync makes a record last",
        "store/disk.py",
        '    getattr(os, "fdatasync", os.fsync)(fd)\n',
        "    pass\n",
        "tests/faults/test_power_cut.py -k lasts",
    ),
    Mutant(
        "names are not synced",
        "store/disk.py",
        "        with speaking_of(self.path):\n            os.fsync(self.fd)\n",
        "        pass\n",
        "tests/faults/test_power_cut.py -k lasts",
    ),
    Mutant(
        "a session that was removed comes back",
        "store/removal.py",
        "    sessions.sync()\n",
        "",
        "tests/faults/test_power_cut.py -k whole_session",
    ),
    Mutant(
        "probe with an exclusive lock",
        "store/locks.py",
        "fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)",
        "fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)",
        "tests/store/test_locks.py",
    ),
    Mutant(
        "a forked child frees the lock",
        "store/locks.py",
        "os.register_at_fork(after_in_child=_forget_parent)",
        "",
        "tests/store/test_locks.py -k fork",
    ),
    Mutant(
        "a forked child keeps its parent's lock",
        "store/locks.py",
        "        if fd >= 0:\n            os.close(fd)\n        if place.thread",
        "        if place.thread",
        "tests/store/test_locks.py -k fork",
    ),
    Mutant(
        "a snapshot outlives its events",
        "store/runs.py",
        "will be given again.\n            self._make_last()\n",
        "will be given again.\n            pass\n",
        "tests/store/test_late_syncs.py",
    ),
    Mutant(
        "what is to be synced behind the lock is told before",
        "store/runs.py",
        "        if self._is_owed:\n            self._kept_back",
        "        if False:\n            self._kept_back",
        "tests/store/test_late_syncs.py",
    ),
    Mutant(
        "a lock that is not given back is kept",
        "store/locks.py",
        "                    fd, place.fd = place.fd, -1\n                    os.close(fd)\n                if self",
        "                    pass\n                if self",
        "tests/faults/test_unlocking.py",
    ),
    Mutant(
        "a session means its newest run",
        "commands/names.py",
        "self.session.front()",
        "next(iter(self.session.newest_run_ids(1)), None)",
        "tests/cli/test_slot.py",
    ),
    Mutant(
        "run.json tells of a write when it is over",
        "executor/stretch.py",
        "                if acts:\n                    self._keep_snapshot_exact(writer)\n                self",
        "                self",
        "tests/cli/test_cut_log.py",
    ),
    Mutant(
        "a repair looks once",
        "store/check/repair.py",
        "_PASSES = 4\n",
        "_PASSES = 1\n",
        "tests/store/test_check_beside.py",
    ),
    Mutant(
        "a torn tail is glued",
        "store/log.py",
        "        end = line_start(fd, size)\n        if end == size:",
        "        end = size\n        if end == size:",
        "tests/store/test_log.py",
    ),
    Mutant(
        "a torn tail is dropped",
        "store/log.py",
        "        keep_aside(self.directory, torn_name(self.name, end), torn)\n",
        "",
        "tests/store/test_log.py",
    ),
    Mutant(
        "a failed write leaves a fragment",
        "store/log.py",
        "os.ftruncate(fd, size)",
        "pass",
        "tests/store/test_log.py",
    ),
    Mutant(
        "appending goes on after a failed sync",
        "store/log.py",
        "_given_up[_identity(fd)] = words",
        "pass",
        "tests/store/test_log.py",
    ),
    Mutant(
        "the number of a damaged line is used again",
        "store/numbers.py",
        "last = max(seq + behind, last)",
        "last = max(seq, last)",
        "tests/store/test_log.py",
    ),
    Mutant(
        "files are readable by all", "store/disk.py", "| _READ, 0o600,", "| _READ, 0o644,", "tests/store/test_tree.py"
    ),
    Mutant(
        "links are followed",
        "store/disk.py",
        "_COMMON = os.O_CLOEXEC | os.O_NOFOLLOW",
        "_COMMON = os.O_CLOEXEC",
        "tests/store/test_planted.py",
    ),
    Mutant(
        "a hard link is not seen",
        "store/disk.py",
        "if found.st_nlink > names else None",
        "if False else None",
        "tests/store/test_planted.py",
    ),
    Mutant("ids are checked at their start", "ids.py", " and _LATER.issuperset(text)", "", "tests/test_ids.py"),
    Mutant(
        "an old lease may write",
        "store/runs.py",
        "if run.generation != lease.generation:",
        "if False:",
        "tests/store/test_runs.py",
    ),
    Mutant(
        "the cancel file is passed over",
        "store/runs.py",
        "        if self.stop_is_asked(run):\n",
        "        if False:\n",
        "tests/store tests/cli",
    ),
    # Redo: each step is needed.
    Mutant(
        "a lost run directory stays lost",
        "store/redo.py",
        "        make_run_again(writer, run_id)\n",
        "        pass\n",
        "tests/store/test_redo.py",
    ),
    Mutant(
        "an end is not published again",
        "store/redo.py",
        "            closing.publish(writer, run_dir, run)\n",
        "            pass\n",
        "tests/store/test_redo.py",
    ),
    Mutant(
        "a lost slot stays free",
        "store/redo.py",
        "    closing.link_next(writer)\n",
        "",
        "tests/store/test_redo.py",
    ),
    Mutant(
        "an interrupt that was promised is forgotten",
        "store/redo.py",
        "        closing.stop_interrupted(writer, prompt)\n",
        "        pass\n",
        "tests/store/test_redo.py",
    ),
    Mutant(
        "a run stops twice for one interrupt",
        "store/closing.py",
        "    if run.is_over or run.ending is not None:\n",
        "    if run.is_over:\n",
        "tests/store",
    ),
    Mutant(
        "a process that waits leaves its run to others",
        "commands/control.py",
        "(stay and run.status is RunStatus.QUEUED)",
        "False",
        "tests/cli/test_queue.py",
    ),
    Mutant(
        "nobody starts the next run",
        "commands/execution.py",
        "    start_detached(place, run_dir.session_id, run_id, liveness)\n    return True\n",
        "    os.close(liveness)\n    return True\n",
        "tests/cli/test_queue.py",
    ),
    Mutant(
        "a stored answer is not taken up",
        "store/redo.py",
        "    if answer is not None:\n",
        "    if False:\n",
        "tests/store/test_redo.py",
    ),
    Mutant(
        "the closing message comes twice",
        "store/closing.py",
        "if writer.closing_message(run) is None:",
        "if True:",
        "tests/store/test_redo.py",
    ),
    Mutant(
        "the slot is not freed",
        "store/closing.py",
        "        writer.free_slot()\n",
        "        pass\n",
        "tests/store tests/cli",
    ),
    Mutant(
        "a key is accepted twice",
        "store/inbox.py",
        "    message = writer.session.message_at(hint) if hint else None\n",
        "    message = None\n",
        "tests/store tests/cli",
    ),
    Mutant(
        "a summary that was promised is not looked for",
        "store/tree.py",
        "last.is_input or last.begins_run or",
        "last.is_input or",
        "tests/store/test_redo.py",
    ),
    # The tables.
    Mutant(
        "a cancelled run can complete",
        "states.py",
        "E.RUN_FINISHED: (S.CANCELLED, S.TIMED_OUT, S.FAILED),",
        "E.RUN_FINISHED: (S.CANCELLED, S.TIMED_OUT, S.FAILED, S.COMPLETED),",
        "tests/test_states.py",
    ),
    Mutant(
        "a follow-up becomes a steer",
        "lifecycle/routing.py",
        "    S.RUNNING: FOLLOW_UP,\n",
        "    S.RUNNING: STEER,\n",
        "tests/lifecycle tests/cli/test_routing.py tests/test_docs.py",
    ),
    Mutant(
        "a later intent changes the end",
        "records/changes.py",
        "    if run.ending is not None:\n        # Its end",
        "    if False:\n        # Its end",
        "tests/records",
    ),
    # The executor and the agent.
    Mutant(
        "completed over an undelivered input",
        "executor/stretch.py",
        "if writer.undelivered(run):",
        "if False:",
        "tests/cli/test_routing.py tests/faults/test_inputs.py",
    ),
    Mutant(
        "completed with a failed check",
        "executor/stretch.py",
        "not (found.failed or run.open_operations)",
        "not run.open_operations",
        "tests/cli/test_checks.py",
    ),
    Mutant(
        "a check of another draft counts",
        "agent/checks.py",
        "if each.check == about)",
        "if each.check)",
        "tests/agent/test_checks.py tests/cli/test_checks.py",
    ),
    Mutant(
        "a turn that is covered is shown all the same",
        "agent/context.py",
        "return turn.begun_at > conversation.covered_events",
        "return True",
        "tests/agent/test_compaction.py",
    ),
    Mutant(
        "a gap is kept quiet",
        "executor/stretch.py",
        "with_gaps(report, self.transcript)",
        "report",
        "tests/cli/test_checks.py",
    ),
    Mutant(
        "a call starts over a steer",
        "executor/stretch.py",
        "                if self._inputs.is_steered(writer, run):\n",
        "                if False:\n",
        "tests/cli/test_routing.py",
    ),
    Mutant(
        "follow-ups do not wait",
        "executor/inputs.py",
        "if at_rest or each.mode != FOLLOW_UP]",
        "if True]",
        "tests/cli/test_routing.py",
    ),
    Mutant(
        "a failing tool takes its siblings along",
        "agent/batch.py",
        "            if remote_ids.failure is None:\n                return _broken(call, error)\n",
        "",
        "tests/agent",
    ),
    Mutant(
        "a write that may have happened is tried again",
        "agent/batch.py",
        "return outcome.retryable and not (tool.spec.effect == WRITE and outcome.may_have_effects)",
        "return outcome.retryable",
        "tests/agent tests/adapters",
    ),
    Mutant(
        "runs that failed together come back together",
        "agent/pauses.py",
        "return least + random.uniform(0.0, min(least / 2, LONGEST_PAUSE_SECONDS))",
        "return least",
        "tests/agent/test_loop.py",
    ),
    Mutant(
        "a run waits for what cannot come",
        "agent/request.py",
        "if why else failure",
        "if False else failure",
        "tests/agent/test_loop.py",
    ),
    Mutant(
        "a retry has another idempotency key",
        "agent/batch.py",
        'call.idempotency_key or "",',
        'f"{call.idempotency_key}-{attempt}",',
        "tests/agent",
    ),
    Mutant(
        "descendants outlive a stopped tool",
        "adapters/process/run.py",
        "tree = Tree(partial(belongs, running.pid, mark), spare, group=running.pid, is_forced=is_forced, kill=kill)",
        "tree = Tree(lambda one: one.pid == running.pid, spare, is_forced=is_forced, kill=kill)",
        "tests/adapters/test_process.py",
    ),
    # What is shown.
    Mutant(
        "a stored text is markup in a page",
        "render/html_text.py",
        "return html.escape(shown_line(text), quote=True)",
        "return shown_line(text)",
        "tests/render/test_html.py",
    ),
    Mutant(
        "a code block in a page is markup",
        "render/markdown.py",
        'inside = html.escape("\\n".join(lines[at + 1 : end]))',
        'inside = "\\n".join(lines[at + 1 : end])',
        "tests/render/test_markdown.py",
    ),
    Mutant(
        "what a warning names reaches the terminal",
        "cli/output.py",
        "first, *others = (shown_line(each, unicode=unicode) for each in (text, *hints))",
        "first, *others = (text, *hints)",
        "tests/cli/test_safe_everywhere.py",
    ),
    Mutant(
        "a name that can mean several means the first",
        "store/tree.py",
        "if len(matches) > 1:\n        raise Ambiguous(",
        "if len(matches) > 99:\n        raise Ambiguous(",
        "tests/cli/test_names.py",
    ),
    Mutant(
        "escape characters reach the terminal",
        "render/safe.py",
        "def shown(text: str, *, unicode: bool = True) -> str:\n",
        "def shown(text: str, *, unicode: bool = True) -> str:\n    return text\n",
        "tests/render",
    ),
    Mutant(
        "a lost executor is taken for a living one",
        "store/reading.py",
        'return "none" if idle and not self.unread(run) else "lost"',
        'return "none" if idle and not self.unread(run) else "alive"',
        "tests/cli/test_exit_codes.py",
    ),
    Mutant(
        "a cancelled run exits with 0",
        "cli/exit.py",
        'RunStatus.CANCELLED: EXIT_CODES["cancelled"]',
        "RunStatus.CANCELLED: OK",
        "tests/cli/test_exit_codes.py",
    ),
    # The world outside: nothing happens twice, and what nobody knows is not made up.
    Mutant(
        "asked while the tool is alive",
        "adapters/tools/command.py",
        "return not await end_marked(self._surroundings.marker(invocation.operation_id), grace=self._config.grace)",
        "return True",
        "tests/adapters/test_command.py",
    ),
    Mutant(
        "the job of an operation that is stopped alone goes on",
        "adapters/tools/command.py",
        "if not (stopped.may_have_effects and invocation.is_alone() and can_be_asked):",
        "if True:",
        "tests/cli/test_remote_work.py -k stopped_alone",
    ),
    Mutant(
        "whoever wants an end at once waits for those outside",
        "agent/outside.py",
        "        whole.cancel()\n",
        "        pass\n",
        "tests/cli/test_remote_work.py -k waits_for_nobody",
    ),
    Mutant(
        "a cancel file is taken up between what is decided and what is written",
        "store/runs.py",
        "if self.run_id not in held.looked_for_stop:",
        "if True:",
        "tests/store/test_runs.py",
    ),
    Mutant(
        "what cannot be ended is not named",
        "executor/drive.py",
        "stretch.name_survivors(list(dict.fromkeys(alive)))",
        "pass",
        "tests/cli/test_survivors.py",
    ),
    Mutant(
        "what cannot be seen is taken for gone",
        "store/sight.py",
        " or sees_namespace(where)\n",
        " or True\n",
        "tests/cli/test_out_of_sight.py",
    ),
    Mutant(
        "a probe is believed while the tool may be alive where nobody looks",
        "commands/recovery.py",
        " or out_of_sight(run_dir, run):\n        probed",
        ":\n        probed",
        "tests/cli/test_out_of_sight.py -k denial",
    ),
    Mutant(
        "an executor ends a run of which it does not see everything",
        "executor/drive.py",
        "            if stretch.leave_unseen():\n                return\n",
        "",
        "tests/cli/test_out_of_sight.py -k goes_on_elsewhere",
    ),
    Mutant(
        "an executor that waits does not say what it leaves",
        "executor/hold.py",
        "if self._follows_others or may_leave_processes() else",
        "if self._follows_others else",
        "tests/cli/test_out_of_sight.py -k leaves_something",
    ),
    Mutant(
        "the processes of another /proc are taken for one's own",
        "store/sight.py",
        "return len(numbers) == 1 if numbers",
        "return True if numbers",
        "tests/cli/test_out_of_sight.py -k where_proc",
    ),
    Mutant(
        "a free lock is a lost executor, also where another one is about to get it",
        "store/reading.py",
        "return (has_lock or not lease.locked) and",
        "return has_lock and",
        "tests/store/test_runs.py",
    ),
    Mutant(
        "a tool waits for its own run",
        "cli/family.py",
        "            check_not_own(parent, target.run())\n",
        "            pass\n",
        "tests/cli/test_children.py -k only_watches",
    ),
    Mutant(
        "what is running outside is tried again",
        "adapters/tools/command.py",
        'case "failed":',
        'case "failed" | "running" | "unknown":',
        "tests/adapters/test_command.py",
    ),
    Mutant(
        "a probe that failed is believed",
        "adapters/tools/outside.py",
        "if outcome.exit_code != 0:",
        "if False:",
        "tests/adapters/test_outside.py",
    ),
    Mutant(
        "what is certain outside is overruled",
        "records/operation.py",
        "if not (operation.is_open or operation.is_unresolved):",
        "if False:",
        "tests/lifecycle/test_settlement.py",
    ),
    Mutant(
        "what is unresolved outside frees its resource",
        "store/resources.py",
        "listed = run.unresolved_operations if run.is_over else run.open_operations + run.unresolved_operations",
        "listed = () if run.is_over else run.open_operations",
        "tests/store/test_resources.py",
    ),
    Mutant(
        "two claims outside meet",
        "store/resources.py",
        "with directory_lock(directory) as is_locked:\n            if not is_locked:",
        "for is_locked in (True,):\n            if not is_locked:",
        "tests/store/test_resources.py",
    ),
    Mutant(
        "the end is written before anybody outside was asked",
        "executor/drive.py",
        "await stop_outside(stretch.session, stretch.run_dir, stretch.lease, job.outside, is_forced)",
        "await anyio.sleep(0)",
        "tests/cli/test_remote_work.py",
    ),
    # Models: what is tried again, what is a whole reply, and what nobody may read.
    Mutant(
        "a stream that was cut off is a reply",
        "adapters/models/wire.py",
        "if ended.stop_reason is None and not may_lack_reason:",
        "if False:",
        "tests/adapters/test_models.py",
    ),
    Mutant(
        "a refused key is tried again",
        "adapters/models/failures.py",
        "again = status in _AGAIN or status >= 500",
        "again = status in _AGAIN or status >= 401",
        "tests/adapters/test_models.py -k statuses",
    ),
    Mutant(
        "a server repeats the key into the record",
        "adapters/models/failures.py",
        "reason = settings.redact(failure.reason)[:_LONGEST_REASON]",
        "reason = failure.reason[:_LONGEST_REASON]",
        "tests/adapters/test_models.py -k statuses",
    ),
    Mutant(
        "a key is cut before it is looked for",
        "adapters/models/failures.py",
        "reason = settings.redact(failure.reason)[:_LONGEST_REASON]",
        "reason = settings.redact(failure.reason[:_LONGEST_REASON])",
        "tests/adapters/test_models.py -k cut",
    ),
    Mutant(
        "a request follows wherever it is sent",
        "adapters/models/bounded.py",
        "if not response.has_redirect_location:",
        "if True:",
        "tests/adapters/test_models.py -k sends_on",
    ),
    Mutant(
        "the SDK retries by itself",
        "adapters/models/openai_compatible.py",
        "max_retries=0,",
        "max_retries=2,",
        "tests/adapters/test_models.py -k statuses",
    ),
    Mutant(
        "a key goes to whatever address",
        "adapters/models/choosing.py",
        "if agent.api_key_env or agent.api_key_command or agent.base_url:",
        "if agent.api_key_env or agent.api_key_command:",
        "tests/adapters/test_choosing.py",
    ),
    Mutant(
        "a broken plug-in is a bug of ours",
        "adapters/plugins.py",
        "except Exception as error:",
        "except KeyError as error:",
        "tests/adapters/test_plugins.py",
    ),
    Mutant(
        "an agent's count damages the record",
        "agent/events.py",
        '"usage": told_usage(event.usage),',
        '"usage": event.usage,',
        "tests/cli/test_outside_agents.py -k numbers",
    ),
    Mutant(
        "the server asks for no patience",
        "agent/request.py",
        "self._pause = pause_after(attempt, failure.retry_after)",
        "self._pause = pause_after(attempt)",
        "tests/agent/test_loop.py",
    ),
    Mutant(
        "a command shows its secret",
        "config/secrets.py",
        'shown.append(REDACTED if hides_next else redacted("", word))',
        'shown.append(redacted("", word))',
        "tests/cli/test_configuring.py -k secret",
    ),
    # What is printed for shells and scripts.
    Mutant(
        "a shell keeps an @",
        "cli/shells.py",
        "breaks=${COMP_WORDBREAKS//[^=:]/}",
        "breaks=${COMP_WORDBREAKS//[^@=:]/}",
        "tests/cli/test_completion.py -k terminal",
    ),
    Mutant(
        "completion elsewhere",
        "cli/completing.py",
        "for words in (before, before[:-1]):",
        "for words in ((), before[:-1]):",
        "tests/cli/test_completion.py -k the_line_names",
    ),
    Mutant(
        "an exit code is not told",
        "errors.py",
        '        ("129, 130, 143", "", "ended by SIGHUP, SIGINT, SIGTERM"),\n',
        "",
        "tests/test_docs.py -k generated",
    ),
    Mutant(
        "an undocumented field",
        "cli/configuring.py",
        'json_line({"shell": shell.value, "script": text})',
        'json_line({"shell": shell.value, "text": text})',
        "tests/cli/test_json.py -k every_line",
    ),
    # Archives: nothing gets out of the session's directory, and nothing comes in that would be executed.
    Mutant(
        "a name in an archive may lead out",
        "store/archive/unpacking.py",
        'part in (b"", b".", b"..")',
        'part in (b"", b".")',
        "tests/store/test_archive.py",
    ),
    Mutant(
        "an archive brings in a run that is not over",
        "store/archive/unpacking.py",
        "if not run.is_over or run.applied_seq > run_dir.events.last_seq():",
        "if False:",
        "tests/store/test_archive.py",
    ),
    Mutant(
        "a link in an archive is taken for a file",
        "store/archive/tar.py",
        'if kind not in (b"0", b"\\0", b"5"):',
        'if kind not in (b"0", b"\\0", b"5", b"2"):',
        "tests/store/test_archive.py",
    ),
    Mutant(
        "a run that goes on is packed into an archive",
        "store/archive/packing.py",
        "for run_dir in writer.open_runs():",
        "for run_dir in writer.open_runs()[:0]:",
        "tests/store/test_archive.py",
    ),
    Mutant(
        "what a killed import of an archive left stays for ever",
        "store/staging.py",
        "                    if has_liveness(left, lock):\n",
        "                    if False:\n",
        "tests/store/test_archive.py",
    ),
    Mutant(
        "an export hides what was found out later",
        "commands/exporting.py",
        "if event.type in _FINDINGS:",
        "if False:",
        "tests/commands/test_exporting.py",
    ),
    Mutant(
        "an export replaces a file unasked",
        "commands/outfile.py",
        "os.link(temporary, path, follow_symlinks=False)",
        "os.rename(temporary, path)",
        "tests/commands/test_outfile.py",
    ),
    Mutant(
        "an import calls a call without a result a success",
        "commands/foreign.py",
        '"status": "cancelled", "error": NO_RESULT',
        '"status": "succeeded", "error": NO_RESULT',
        "tests/commands/test_foreign.py",
    ),
    Mutant(
        "an import reads views of a database",
        "adapters/foreign/llm_logs.py",
        "where type = 'table'",
        "where type in ('table', 'view')",
        "tests/commands/test_foreign.py",
    ),
    # Losing the executor: who is dead, who is only late, and what may be done again.
    Mutant(
        "recover takes a process for its executor by its number alone",
        "store/identity.py",
        "is_same_container and start_time(owner.pid) == owner.start_time",
        "is_same_container and start_time(owner.pid) is not None",
        "tests/cli/test_frozen.py -k only_has_the_number",
    ),
    Mutant(
        "recover takes a process of an earlier boot for its executor",
        "store/identity.py",
        "(owner.host, owner.boot_id) == (os.uname().nodename, boot_id())",
        "owner.host == os.uname().nodename",
        "tests/cli/test_frozen.py -k only_has_the_number",
    ),
    Mutant(
        "recover judges a process of another container by its number",
        "store/identity.py",
        "is_to_be_seen = None not in known and known[1:] == (boot_id(), pid_namespace())",
        "is_to_be_seen = True",
        "tests/cli/test_fenced_elsewhere.py -k not_of_here",
    ),
    Mutant(
        "recover takes over without watching for a lease",
        "commands/vigil.py",
        "return max(lease_seconds(lease) - (clock.awake_seconds() - seen.since), 0.0)",
        "return 0.0",
        "tests/cli/test_frozen.py -k wakes_up",
    ),
    Mutant(
        "recover continues a run for ever",
        "lifecycle/recovery.py",
        "or run.next_attempt > max_attempts",
        "or run.next_attempt > 99",
        "tests/cli/test_recover.py -k kills_its_executor",
    ),
    Mutant(
        "recover takes an unknown write for one that did not happen",
        "lifecycle/recovery.py",
        "finding or Finding(O.UNKNOWN, LOST)",
        "finding or Finding(O.FAILED, LOST)",
        "tests/cli/test_recover.py -k nobody_knows",
    ),
    Mutant(
        "a run whose log was lost is made again",
        "store/traces.py",
        "if run_dir.trace_beyond(accepted) is None and not said.is_left_behind():",
        "if True:",
        "tests/store/test_lost_events.py",
    ),
    Mutant(
        "numbers that only the snapshot tells of are used again",
        "store/runs.py",
        "self.events.go_on_above(run.applied_seq)",
        "pass",
        "tests/store/test_redo.py -k snapshot_tells",
    ),
    Mutant(
        "numbers of lost messages are used again",
        "store/writer.py",
        "self.session.messages.go_on_above(newest_message_of(run), self._heeded + 1)",
        "pass",
        "tests/store/test_lost_messages.py",
    ),
    Mutant(
        "a repair replaces what an earlier one kept",
        "store/aside.py",
        "if directory.stat(each) is None:\n            directory.replace(each, data)",
        "if True:\n            directory.replace(each, data)",
        "tests/store/test_check.py -k kept_once",
    ),
    Mutant(
        "recover begins anew what it cannot read",
        "store/runs.py",
        "unread = self.unread(run)",
        "unread = 0",
        "tests/store/test_damaged_events.py",
    ),
    Mutant(
        "recover keeps the lock of a run that it refused",
        "commands/recovery.py",
        "                    self._run_dir.check_whole(writer)\n                lease = self._begin",
        "                    kept.append(liveness)\n                    self._run_dir.check_whole(writer)\n"
        "                lease = self._begin",
        "tests/store/test_damaged_events.py",
    ),
]


def main(words: list[str]) -> int:
    """Runs the chosen mutants; 1 if one of them was not noticed."""
    chosen = [mutant for mutant in MUTANTS if not words or any(word in mutant.name for word in words)]
    unnoticed = []
    with tempfile.TemporaryDirectory(prefix="mutants-") as directory:
        copy = Path(directory)
        copy.chmod(0o755)  # commands of other users run from there
        _copy_project(copy)
        for number, mutant in enumerate(chosen, 1):
            started = time.monotonic()
            noticed_by = _noticed_by(mutant, copy)
            if noticed_by is None:
                unnoticed.append(mutant)
            seconds = time.monotonic() - started
            print(
                f"{number:>3}/{len(chosen)}  {seconds:5.1f} s  {mutant.name}: {noticed_by or 'NOT NOTICED'}", flush=True
            )
    for mutant in unnoticed:
        print(f"not noticed: {mutant.name} ({mutant.file}), by {mutant.tests}")
    print(f"{len(chosen) - len(unnoticed)} of {len(chosen)} breakages were noticed")
    return 1 if unnoticed else 0


def _copy_project(copy: Path) -> None:
    unwanted = shutil.ignore_patterns("__pycache__", "*.pyc")
    for name in COPIED:
        source = PROJECT / name
        if source.is_dir():
            shutil.copytree(source, copy / name, ignore=unwanted)
        else:
            shutil.copy(source, copy / name)


def _noticed_by(mutant: Mutant, copy: Path) -> str | None:
    """The first test that fails with the breakage, None if all pass."""
    path = copy / "agentrun" / mutant.file
    whole = path.read_text("utf-8")
    if whole.count(mutant.old) != 1:
        print(f"{mutant.name}: {mutant.file} holds the line to break {whole.count(mutant.old)} times, not once")
        return None
    passed_over: list[str] = []
    while True:
        path.write_text(whole.replace(mutant.old, mutant.new), "utf-8")
        try:
            tests = ["-n", "2", *mutant.tests.split(), *(f"--deselect={each}" for each in passed_over)]
            failed = _first_failure(mutant.name, tests, copy)
        finally:
            path.write_text(whole, "utf-8")
        if failed is None or _first_failure(mutant.name, [failed], copy) is None:
            return failed
        # A test that fails without the breakage, such as one that had too little time, has noticed nothing.
        print(f"{mutant.name}: {failed} fails without the breakage as well")
        passed_over.append(failed)


def _first_failure(name: str, tests: list[str], copy: Path) -> str | None:
    # The copy before the installed package, also for the processes that the tests start.
    environment = {**os.environ, "PYTHONPATH": str(copy)}
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-m", "not exhaustive", "-p", "no:cacheprovider"]
    command += [f"--timeout={SECONDS_PER_TEST}", *tests]
    ran = subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True, check=False)
    # 5: all that there were are passed over.
    if ran.returncode in (0, 5):
        return None
    failed = [line for line in ran.stdout.splitlines() if line.startswith(("FAILED ", "ERROR "))]
    # 2: the parallel runner stops after the first failure and calls that an interruption.
    if ran.returncode not in (1, 2) or not failed:
        raise SystemExit(f"{name}: the tests did not run\n{ran.stdout[-3000:]}{ran.stderr[-3000:]}")
    return failed[0].split(" - ")[0].partition(" ")[2]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
