"""Runs the benchmarks, all or those named, one after the other: one that fails says so, and the others go on.

python benchmarks/all.py [NAME]... [--small]
"""

from __future__ import annotations

import subprocess
import sys

from frame import HERE, LIMIT, environment

# In the order of the results. Each is a script of that name.
SCRIPTS = (
    "start", "append", "append_unsynced", "crowd", "many_runs", "reading", "searching", "listing", "tail", "cancel",
    "turns", "memory", "growth",
)  # fmt: skip


def main(arguments: list[str]) -> int:
    options = [each for each in arguments if each.startswith("-")]
    names = [each for each in arguments if not each.startswith("-")]
    unknown = sorted(set(names) - set(SCRIPTS))
    if unknown:
        print(f"there is no benchmark {unknown[0]}; there are: {' '.join(SCRIPTS)}", file=sys.stderr)
        return 2
    failed = []
    for name in names or SCRIPTS:
        argv = [sys.executable, str(HERE / f"{name}.py"), *options]
        try:
            # It watches its own time; this is for one that hangs where no signal reaches it.
            code = subprocess.run(argv, env=environment(), check=False, timeout=LIMIT + 60).returncode
        except subprocess.TimeoutExpired:
            code = 1
        failed += [name] if code else []
    if failed:
        print(f"failed: {' '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
