"""What the benchmarks share: rounds in turns, tables, and the section of `results.md` that each of them writes.

Times on a busy machine say little, and ratios within one run say much: the ways that are compared take turns, round by
round, and a ratio is the median of the ratios within the rounds.
"""

from __future__ import annotations

import argparse
import os
import platform
import signal
import statistics
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results.md"
TITLE = "# Results\n\nWritten by `make bench`, a section by each script; ratios are taken within one run.\n"
# Seconds after which a script gives up, and says so in its section, so that the others get their turn.
LIMIT = 240

# The seconds that single actions took, round by round, of each way.
Taken = dict[str, list[list[float]]]


class Size(NamedTuple):
    """How much to measure, and the folder in which to do it: it is removed at the end."""

    is_small: bool
    folder: Path

    def of(self, full: int, small: int) -> int:
        """`full`, or `small` where it only matters that the script runs."""
        return small if self.is_small else full


class Reach(NamedTuple):
    """A figure to be reached: `value` is to be at most `limit`, or at least with `or_more`."""

    what: str
    value: float
    limit: float
    or_more: bool = False

    @property
    def is_reached(self) -> bool:
        return self.value >= self.limit if self.or_more else self.value <= self.limit


def in_turns(ways: Mapping[str, Callable[[], Iterable[float]]], rounds: int, *, warm_up: int = 1) -> Taken:
    """Calls each way once a round, in turns; a way returns the seconds that each of its actions took.

    The first `warm_up` rounds are not counted. Every other round goes backwards, so that none always follows the same.
    """
    taken: Taken = {name: [] for name in ways}
    for number in range(rounds + warm_up):
        order = list(ways.items())
        for name, way in order if number % 2 else reversed(order):
            seconds = list(way())
            if number >= warm_up:
                taken[name].append(seconds)
    return taken


def timed(action: Callable[[], object], times: int = 1) -> Callable[[], list[float]]:
    """A way that takes the time of `action`, `times` times a round."""

    def way() -> list[float]:
        seconds = []
        for _ in range(times):
            start = time.perf_counter()
            action()
            seconds.append(time.perf_counter() - start)
        return seconds

    return way


def median(rounds: Sequence[Sequence[float]]) -> float:
    """The median of all actions."""
    return statistics.median(second for each in rounds for second in each)


def percentile(rounds: Sequence[Sequence[float]], share: float = 0.99) -> float:
    """What that share of all actions did not exceed."""
    seconds = sorted(second for each in rounds for second in each)
    return seconds[min(len(seconds) - 1, round(share * len(seconds)))]


def ratio(taken: Taken, way: str, base: str) -> float:
    """How much longer `way` takes than `base`: the median of the ratios within the rounds."""
    pairs = zip(taken[way], taken[base], strict=True)
    return statistics.median(statistics.median(mine) / statistics.median(its) for mine, its in pairs)


def times_table(taken: Taken, base: str) -> str:
    """Median, 99th percentile and ratio to `base` of each way, in Markdown."""
    rows = [
        (name, shown(median(rounds)), shown(percentile(rounds)), f"{ratio(taken, name, base):.2f}")
        for name, rounds in taken.items()
    ]
    return table(("way", "median", "p99", f"x {base}"), rows)


def table(heading: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table in Markdown; all columns but the first are figures."""
    lines = [heading, ["---", *["---:"] * (len(heading) - 1)], *rows]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)


def reach_table(reaches: Iterable[Reach]) -> str:
    """What was to be reached and what was, in Markdown."""
    rows = []
    for each in reaches:
        bound = f"at {'least' if each.or_more else 'most'} {each.limit:g}"
        rows.append((each.what, bound, f"{each.value:.3g}", "yes" if each.is_reached else "**no**"))
    return table(("reach", "", "measured", "reached"), rows)


def shown(seconds: float) -> str:
    """A time with a unit that fits it."""
    for unit, factor in (("s", 1), ("ms", 1e3)):
        if seconds * factor >= 1:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds * 1e6:.3g} us"


def run(heading: str, measure: Callable[[Size], str], about: str | None) -> None:
    """Runs a benchmark as a script: `measure` returns the text of its section, above which stands what it is `about`.

    With `--small` it measures little and writes nothing into `results.md`. What fails is told in the section.
    """
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--small", action="store_true", help="only see that it runs: measure little, write no results")
    is_small = parser.parse_args().small
    signal.signal(signal.SIGALRM, _give_up)
    signal.alarm(LIMIT)
    failed = False
    with tempfile.TemporaryDirectory(prefix="agentrun-bench-", ignore_cleanup_errors=True) as folder:
        try:
            text = measure(Size(is_small, Path(folder).resolve()))
        except Exception as error:  # noqa: BLE001 - whatever it is belongs into the section, and the others go on
            traceback.print_exc()
            # The results name no place of this machine.
            said = str(error).replace(folder, "...").replace(str(HERE), "...")
            text, failed = f"**Not measured:** {type(error).__name__}: {said[:300]}", True
        signal.alarm(0)
        section = "\n\n".join(part for part in (facts(folder), (about or "").strip(), text) if part)
    print(f"## {heading}\n\n{section}\n", flush=True)
    if not is_small:
        write_section(heading, section)
    sys.exit(1 if failed else 0)


def write_section(heading: str, text: str) -> None:
    """Puts a section into the page, in place of an earlier one."""
    page = RESULTS.read_text("utf-8") if RESULTS.exists() else TITLE
    head, *sections = page.split("\n## ")
    named = {section.partition("\n")[0]: section.rstrip() for section in sections}
    named[heading] = f"{heading}\n\n{text.rstrip()}"
    RESULTS.write_text("\n\n## ".join([head.rstrip(), *named.values()]) + "\n", "utf-8")


def facts(folder: str) -> str:
    """When and on what it was measured."""
    python = f"Python {platform.python_version()}"
    load = f"load {os.getloadavg()[0]:.1f}"
    day = time.strftime("%Y-%m-%d", time.gmtime())
    machine = f"{os.cpu_count()} cores, {_file_system(folder)}, {platform.system()} {platform.release().split('-')[0]}"
    return f"{day}, {machine}, {python}, {load} at the end."


def environment(**more: str) -> dict[str, str]:
    """For processes that are measured: as a user has it, with bytecode: without it Python starts 4 times slower."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("AGENTRUN_", "PYTHON"))}
    return kept | more


def _file_system(folder: str) -> str:
    best, kind = "", "unknown file system"
    with suppress(OSError):
        for line in Path("/proc/mounts").read_text("utf-8").splitlines():
            _, mounted, found = line.split()[:3]
            if len(mounted) >= len(best) and (folder + "/").startswith(mounted.rstrip("/") + "/"):
                best, kind = mounted, found
    return kind


def _give_up(*_: object) -> None:
    raise TimeoutError(f"it took longer than {LIMIT} s")
