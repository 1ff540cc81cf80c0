"""Named tuples that cost little at start-up do what those of `typing` do."""

import subprocess
import sys

import pytest

from agentrun.named import NamedTuple


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
    assert (Point.__doc__, Point.__module__, Point.__bases__) == ("A place.", __name__, (tuple,))


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


def test_they_need_no_typing() -> None:
    code = "import sys; from agentrun.named import NamedTuple; sys.exit('typing' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
