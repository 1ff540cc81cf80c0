"""Which kind of input a text is: every state of the slot with every mode and every answer to a busy slot.

The table below is the contract (section 4) written down once more, by hand. What the code says is compared with it
cell by cell, so it is not made from the code.

# covers A5 A6 A7 A31 B1 B6 B14 B15 B16 B17 B18 B19 B23 B58
"""

from __future__ import annotations

from itertools import product

import pytest

from agentrun.errors import AgentrunError, ImpossibleMode, SlotTaken
from agentrun.lifecycle.routing import CHOSEN, MODES, POSSIBLE, IfBusy, Standing, route, standing
from agentrun.records.run import Run
from agentrun.records.views import RunView
from agentrun.states import OPEN, TERMINAL, RunStatus

S = RunStatus

# One row for each run that may hold the slot: its status, what it waits for, its executor as `show` has it.
# One column for each way to say something. taken = SlotTaken, never = ImpossibleMode, both exit 7.
TABLE = """
state                  executor | plain     prompt steer  follow-up answer | reject queue  steer  interrupt
free                   -        | prompt    prompt never  never     never  | prompt prompt prompt prompt
queued                 none     | follow-up taken  steer  follow-up never  | taken  last   steer  next
queued                 alive    | follow-up taken  steer  follow-up never  | taken  last   steer  next
running                alive    | follow-up taken  steer  follow-up never  | taken  last   steer  next
running                frozen   | follow-up taken  steer  follow-up never  | taken  last   steer  next
compacting             alive    | follow-up taken  steer  follow-up never  | taken  last   steer  next
compacting             frozen   | follow-up taken  steer  follow-up never  | taken  last   steer  next
waiting_input/question none     | answer    taken  steer  follow-up answer | taken  last   steer  next
waiting_input/question alive    | answer    taken  steer  follow-up answer | taken  last   steer  next
waiting_input/question frozen   | answer    taken  steer  follow-up answer | taken  last   steer  next
waiting_input/approval none     | never     taken  steer  follow-up never  | taken  last   steer  next
waiting_input/approval alive    | never     taken  steer  follow-up never  | taken  last   steer  next
waiting_input/approval frozen   | never     taken  steer  follow-up never  | taken  last   steer  next
reconciling            lost     | taken     taken  never  never     never  | taken  last   never  next
reconciling            alive    | taken     taken  never  never     never  | taken  last   never  next
cancelling             alive    | taken     taken  never  never     never  | taken  last   never  next
cancelling             frozen   | taken     taken  never  never     never  | taken  last   never  next
cancelling             lost     | taken     taken  never  never     never  | taken  last   never  next
"""
REFUSED: dict[str, type[AgentrunError]] = {"taken": SlotTaken, "never": ImpossibleMode}
WAITS = {"prompt": Standing.NOW, "last": Standing.LAST, "next": Standing.NEXT}

Way = tuple[str | None, IfBusy | None]


def _ways() -> list[Way]:
    """The columns, in their order: a mode that is asked for, or what to do if the slot is taken."""
    head = [cells.split() for cells in _lines()[0].split("|")]
    plain, modes, policies = head[1][0], head[1][1:], head[2]
    assert plain == "plain"
    return [(None, None), *((mode, None) for mode in modes), *((None, IfBusy(policy)) for policy in policies)]


def _lines() -> list[str]:
    return TABLE.strip().splitlines()


def _rows() -> list[tuple[str, str, list[str]]]:
    rows = []
    for line in _lines()[1:]:
        about, *cells = (part.split() for part in line.split("|"))
        rows.append((about[0], about[1], [cell for part in cells for cell in part]))
    return rows


CELLS = [
    pytest.param(state, executor, way, expected, id=f"{state} {executor}, {way[0] or way[1] or 'plain'}")
    for state, executor, cells in _rows()
    for way, expected in zip(_ways(), cells, strict=True)
]
STATES = list(dict.fromkeys((state, executor) for state, executor, _ in _rows()))


def slot(state: str, executor: str) -> RunView | None:
    """The run that holds the slot in that state."""
    if state == "free":
        return None
    name, _, kind = state.partition("/")
    status = RunStatus(name)
    waiting = {"questionId": "q", "kind": kind} if kind else None
    ending = RunStatus.TIMED_OUT if status is S.CANCELLING else None
    run = Run("s1", "run-7", "ann", status, waiting_for=waiting, ending=ending)
    return RunView(run, status, executor)  # type: ignore[arg-type]


@pytest.mark.parametrize(("state", "executor", "way", "expected"), CELLS)
def test_each_input_goes_where_the_contract_says(state: str, executor: str, way: Way, expected: str) -> None:
    active, (mode, if_busy) = slot(state, executor), way
    if expected not in REFUSED:
        kind = route(active, mode, if_busy)
        assert kind == ("prompt" if expected in WAITS else expected)
        if kind == "prompt":
            assert standing(active, if_busy) is WAITS[expected]
        return
    with pytest.raises(AgentrunError) as caught:
        route(active, mode, if_busy)
    error = caught.value
    assert type(error) is REFUSED[expected]
    assert error.exit_code == 7
    assert error.message
    assert error.hint
    assert "{" not in error.message + error.hint
    if active is not None:
        assert "s1/run-7" in error.message
        assert (error.session_id, error.run_id) == ("s1", "run-7")


def test_the_table_has_every_state_of_the_slot_and_every_way_to_say_something() -> None:
    assert {state.partition("/")[0] for state, _ in STATES} == {"free", *OPEN}
    assert _ways() == [(None, None), *((mode, None) for mode in MODES), *((None, policy) for policy in IfBusy)]


@pytest.mark.parametrize(("state", "executor"), STATES)
@pytest.mark.parametrize("if_busy", list(IfBusy))
def test_what_to_do_if_busy_implies_a_prompt(state: str, executor: str, if_busy: IfBusy) -> None:
    def outcome(mode: str | None) -> object:
        try:
            return route(slot(state, executor), mode, if_busy)
        except AgentrunError as error:
            return type(error), error.message

    assert outcome("prompt") == outcome(None)


def test_nothing_is_ever_silently_another_kind_than_the_one_asked_for() -> None:
    for where, mode, if_busy in product(STATES, MODES, [None, *IfBusy]):
        try:
            kind = route(slot(*where), mode, if_busy)
        except AgentrunError:
            continue
        assert kind == mode or (mode == "prompt" and if_busy == kind)


def test_no_prompt_is_let_through_beside_another_run_but_to_wait_for_it() -> None:
    """B5, B15, B23."""
    for where, mode, if_busy in product(STATES, [None, *MODES], [None, *IfBusy]):
        active = slot(*where)
        if active is None:
            continue
        try:
            kind = route(active, mode, if_busy)
        except AgentrunError:
            continue
        assert kind != "prompt" or standing(active, if_busy) is not Standing.NOW


def test_the_tables_name_open_statuses_and_every_kind() -> None:
    assert set(CHOSEN) <= OPEN
    assert not set(CHOSEN) & TERMINAL
    assert set(POSSIBLE) == set(MODES) - {"prompt"}
    for statuses in POSSIBLE.values():
        assert statuses <= OPEN
    # What is chosen is possible.
    for status, kind in CHOSEN.items():
        assert status in POSSIBLE[kind]


@pytest.mark.parametrize(
    ("state", "executor", "word"),
    [
        ("cancelling", "alive", "timing out"),
        ("cancelling", "lost", "cancel"),
        ("reconciling", "lost", "cancel"),
        ("running", "alive", "show -f"),
    ],
)
def test_a_refusal_says_what_the_run_does_and_what_to_type(state: str, executor: str, word: str) -> None:
    with pytest.raises(SlotTaken) as caught:
        route(slot(state, executor), "prompt", None)
    assert word in f"{caught.value.message} {caught.value.hint}"


def test_an_approval_is_not_asked_to_be_answered_with_a_text() -> None:
    for mode in (None, "answer", "prompt"):
        with pytest.raises(AgentrunError) as caught:
            route(slot("waiting_input/approval", "none"), mode, None)
        assert "agentrun approve s1/run-7" in str(caught.value.hint)
