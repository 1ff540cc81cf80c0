"""Named tuples and closed sets that cost little at start-up do what those of `typing` and `enum` do."""

import copy
import enum
import json
import pickle
import subprocess
import sys
import threading
import typing
from typing import Any

import pytest

from agentrun.named import NamedTuple, StrEnum


class Point(NamedTuple):
    """A place."""

    x: int
    y: "int | None" = None

    @property
    def swapped(self) -> "Point":
        return self._replace(x=self.y or 0, y=self.x)

    @classmethod
    def origin(cls) -> "Point":
        return cls(0, 0)

    def __str__(self) -> str:
        return f"{self.x}:{self.y}"


def test_fields_defaults_and_methods_are_those_of_the_class() -> None:
    assert Point(1) == (1, None)
    assert Point(1, 2).swapped == Point(2, 1) == Point(y=1, x=2)
    assert (Point.origin(), str(Point(3)), repr(Point(3))) == ((0, 0), "3:None", "Point(x=3, y=None)")
    assert (Point._fields, Point._field_defaults, Point(1, 2)._asdict()) == (("x", "y"), {"y": None}, {"x": 1, "y": 2})
    assert (Point.__doc__, Point.__module__, issubclass(Point, tuple)) == ("A place.", __name__, True)
    match Point(1, 2):
        case Point(x, y):
            assert (x, y) == (1, 2)


def test_a_copy_with_other_fields_is_of_the_same_kind_and_leaves_the_first_as_it_was() -> None:
    point = Point(1, 2)
    assert (point._replace(y=3), point._replace(), point) == (Point(1, 3), Point(1, 2), Point(1, 2))
    assert type(point._replace(x=4)) is Point
    with pytest.raises(ValueError, match=r"unexpected field names: \['z'\]"):
        point._replace(x=5, z=6)


def test_they_are_frozen_and_small() -> None:
    point = Point(1)
    with pytest.raises(AttributeError):
        point.x = 2  # type: ignore[misc]
    with pytest.raises(AttributeError):
        point.z = 2  # type: ignore[attr-defined]
    with pytest.raises(TypeError):
        Point()  # type: ignore[call-arg]


class Ours(NamedTuple):
    x: int
    y: "int | None" = None
    z: str = "z"


class Usual(typing.NamedTuple):
    x: int
    y: "int | None" = None
    z: str = "z"


class OursBelow(Ours):
    __slots__ = ()


class UsualBelow(Usual):
    __slots__ = ()


# After so many objects, at the latest, a class has compiled how they are made.
MANY = 100
CALLS = [((1,), {}), ((1, 2), {}), ((1, 2, "a"), {}), ((1,), {"z": "a"}), ((), {"z": "a", "x": 1}), ((), {"x": 1})]
WRONG = [((), {}), ((1, 2, "a", 4), {}), ((1,), {"x": 1}), ((1,), {"w": 1}), ((), {"y": 1}), ((1, 2), {"y": 2})]


def told(made: Any) -> list[object]:
    """All that one tuple tells of itself, and of its copies."""
    copies = [copy.copy(made), copy.deepcopy(made), pickle.loads(pickle.dumps(made)), made._replace(z="b", x=5)]
    called = type(made).__name__
    fields = [(name, getattr(made, name)) for name in made._fields]
    return [
        tuple(made), made._asdict(), fields, repr(made).removeprefix(called), hash(made), made == tuple(made),
        *([tuple(each), type(each) is type(made)] for each in copies), made._field_defaults, type(made).__match_args__,
    ]  # fmt: skip


@pytest.mark.parametrize(("given", "named"), CALLS)
def test_each_tells_what_that_of_typing_tells(given: tuple[Any, ...], named: dict[str, Any]) -> None:
    for _ in range(MANY):
        assert told(Ours(*given, **named)) == told(Usual(*given, **named))
        assert told(OursBelow(*given, **named)) == told(UsualBelow(*given, **named))


@pytest.mark.parametrize(("given", "named"), WRONG)
def test_wrong_arguments_are_refused_in_the_usual_words(given: tuple[Any, ...], named: dict[str, Any]) -> None:
    with pytest.raises(TypeError) as usual:
        Usual(*given, **named)
    for _ in range(2):  # the first call of the class and one that follows
        with pytest.raises(TypeError) as ours:
            Ours(*given, **named)
        assert str(ours.value).partition("()")[2] == str(usual.value).partition("()")[2]


def test_threads_may_make_the_first_ones_together() -> None:
    for _ in range(50):

        class Fresh(NamedTuple):
            x: int
            y: int = 7

        start = threading.Barrier(4)
        made: list[Fresh] = []

        def make(start: threading.Barrier = start, made: list[Fresh] = made, fresh: type[Fresh] = Fresh) -> None:
            start.wait()
            made.append(fresh(1))

        threads = [threading.Thread(target=make) for _ in range(4)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        assert made == [(1, 7)] * 4
        assert {type(each) for each in made} == {Fresh}


class Tea(StrEnum):
    """What there is."""

    GREEN = "green tea"
    BLACK = "black tea"

    @property
    def is_green(self) -> bool:
        return self is Tea.GREEN


class UsualTea(enum.StrEnum):
    GREEN = "green tea"
    BLACK = "black tea"


def test_a_closed_set_is_that_of_enum() -> None:
    for ours, usual in zip(Tea, UsualTea, strict=True):
        assert (ours.name, ours.value, type(ours.value)) == (usual.name, usual.value, str)
        assert (str(ours), f"{ours}", f"{ours:>12}", json.dumps(ours)) == (
            str(usual), f"{usual}", f"{usual:>12}", json.dumps(usual),
        )  # fmt: skip
        assert hash(ours) == hash(usual)
        assert ours == usual == ours.value
        assert repr(ours) == repr(usual).replace("UsualTea", "Tea")
        assert Tea(ours.value) is Tea(ours) is getattr(Tea, ours.name) is ours
        assert copy.copy(ours) is copy.deepcopy(ours) is pickle.loads(pickle.dumps(ours)) is ours
    assert (list(Tea.__members__), len(Tea), Tea.__doc__) == (["GREEN", "BLACK"], 2, "What there is.")
    assert ("green tea" in Tea, "water" in Tea) == (True, False)
    assert [each.is_green for each in Tea] == [True, False]
    assert all(isinstance(each, Tea) and isinstance(each, str) for each in Tea)


def test_no_other_word_is_in_a_closed_set() -> None:
    for wrong in ("water", None, [], 1):
        with pytest.raises(ValueError, match="is not a valid") as usual:
            UsualTea(wrong)
        with pytest.raises(ValueError, match="is not a valid") as ours:
            Tea(wrong)  # type: ignore[arg-type]
        assert str(ours.value) == str(usual.value).replace("UsualTea", "Tea")


def test_they_need_nothing_that_is_slow_to_load() -> None:
    slow = "'typing enum collections functools operator keyword types'.split()"
    code = f"import sys; import agentrun.named; sys.exit(any(name in sys.modules for name in {slow}))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
