"""Which kind of input a text is: every state of the slot with every mode and every answer to a busy slot.

Covers A5-A7, A31, B6, B14-B19, B23, B58.
"""

from itertools import product

import pytest

from agentrun.errors import AgentrunError, ImpossibleMode, SlotTaken
from agentrun.lifecycle.routing import CHOSEN, MODES, POSSIBLE, IfBusy, route
from agentrun.records.run import Run
from agentrun.records.views import RunView
from agentrun.states import OPEN, TERMINAL, RunStatus

S = RunStatus
# What a plain `send` is, by the contract (section 4): by hand, once more.
PLAIN = {
    "free": "prompt",
    "queued": "follow-up",
    "running": "follow-up",
    "compacting": "follow-up",
    "waiting_input": "answer",
    "waiting_input for approval": ImpossibleMode,
    "cancelling": SlotTaken,
    "reconciling": SlotTaken,
}
# What each mode that is asked for by name comes to.
FORCED: dict[str, dict[str, object]] = {
    "prompt": dict.fromkeys(PLAIN, SlotTaken) | {"free": "prompt"},
    "steer": dict.fromkeys(PLAIN, "steer")
    | {"free": ImpossibleMode, "cancelling": ImpossibleMode, "reconciling": ImpossibleMode},
    "follow-up": dict.fromkeys(PLAIN, "follow-up")
    | {"free": ImpossibleMode, "cancelling": ImpossibleMode, "reconciling": ImpossibleMode},
    "answer": dict.fromkeys(PLAIN, ImpossibleMode) | {"waiting_input": "answer"},
}
# `--if-busy` implies `--mode prompt`.
IF_BUSY: dict[str, dict[str, object]] = {
    "reject": FORCED["prompt"],
    "steer": FORCED["steer"] | {"free": "prompt"},
}


def slot(state: str) -> RunView | None:
    """The run that holds the slot in that state."""
    if state == "free":
        return None
    status = RunStatus(state.split(" ")[0])
    waiting = {"questionId": "q", "kind": "approval" if state.endswith("approval") else "question"}
    ending = RunStatus.TIMED_OUT if status is S.CANCELLING else None
    run = Run("s1", "run-7", "ann", status, waiting_for=waiting if status is S.WAITING_INPUT else None, ending=ending)
    return RunView(run, status, "alive")


def check(state: str, mode: str | None, if_busy: IfBusy | None, expected: object) -> None:
    if isinstance(expected, str):
        assert route(slot(state), mode, if_busy) == expected
        return
    assert isinstance(expected, type)
    with pytest.raises(AgentrunError) as caught:
        route(slot(state), mode, if_busy)
    error = caught.value
    assert type(error) is expected
    assert error.exit_code == 7
    assert error.message
    assert error.hint
    assert "{" not in error.message + error.hint
    if state != "free":
        assert "s1/run-7" in error.message
        assert (error.session_id, error.run_id) == ("s1", "run-7")


@pytest.mark.parametrize("state", PLAIN)
def test_a_plain_send_goes_where_the_contract_says(state: str) -> None:
    check(state, None, None, PLAIN[state])


@pytest.mark.parametrize("state", PLAIN)
@pytest.mark.parametrize("mode", FORCED)
def test_a_mode_that_is_asked_for_is_that_one_or_an_error(state: str, mode: str) -> None:
    check(state, mode, None, FORCED[mode][state])


@pytest.mark.parametrize("state", PLAIN)
@pytest.mark.parametrize("mode", [None, "prompt"])
@pytest.mark.parametrize("if_busy", list(IfBusy))
def test_what_a_prompt_does_when_the_slot_is_taken_is_chosen_by_the_caller(
    state: str, mode: str | None, if_busy: IfBusy
) -> None:
    if if_busy.value not in IF_BUSY:
        pytest.skip(f"{if_busy} is tried out with the queue")
    check(state, mode, if_busy, IF_BUSY[if_busy.value][state])


def test_nothing_is_ever_silently_another_kind_than_the_one_asked_for() -> None:
    for state, mode, if_busy in product(PLAIN, MODES, [None, *IfBusy]):
        try:
            kind = route(slot(state), mode, if_busy)
        except AgentrunError:
            continue
        assert kind == mode or (mode == "prompt" and if_busy == kind)


def test_no_prompt_runs_beside_another_run() -> None:
    """B5, B15, B23."""
    for state, mode, if_busy in product(PLAIN, [None, *MODES], [None, IfBusy.REJECT, IfBusy.STEER]):
        if state == "free":
            continue
        try:
            assert route(slot(state), mode, if_busy) != "prompt"
        except AgentrunError:
            continue


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
    ("state", "word"), [("cancelling", "timing out"), ("reconciling", "cancel"), ("running", "show -f")]
)
def test_a_refusal_says_what_the_run_does_and_what_to_type(state: str, word: str) -> None:
    with pytest.raises(SlotTaken) as caught:
        route(slot(state), "prompt", None)
    assert word in f"{caught.value.message} {caught.value.hint}"


def test_an_approval_is_not_asked_to_be_answered_with_a_text() -> None:
    for mode in (None, "answer", "prompt"):
        with pytest.raises(AgentrunError) as caught:
            route(slot("waiting_input for approval"), mode, None)
        assert "agentrun approve s1/run-7" in str(caught.value.hint)
