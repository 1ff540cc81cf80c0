"""Numbers of messages, many of them, in few bytes each."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

# As many bits are one mebibyte of memory; there are that many numbers in the longest of sessions. Higher ones are in
# logs that somebody else wrote, as those below zero are.
_MOST_BITS = 1 << 23
_BITS = 32
_LOW = (1 << _BITS) - 1


class Numbers:
    """A set of numbers, in a bit for each from 0 to the highest."""

    def __init__(self, numbers: Iterable[int] = ()) -> None:
        self._bits = bytearray()
        self._others: set[int] = set()
        for number in numbers:
            self.add(number)

    def add(self, number: int) -> None:
        """Puts `number` in."""
        if not 0 <= number < _MOST_BITS:
            self._others.add(number)
            return
        missing = number // 8 + 1 - len(self._bits)
        if missing > 0:
            self._bits += bytes(max(missing, len(self._bits) // 2))
        self._bits[number // 8] |= 1 << number % 8

    def __contains__(self, number: int) -> bool:
        if 0 <= number < 8 * len(self._bits):
            return bool(self._bits[number // 8] >> number % 8 & 1)
        return number in self._others


class Marked:
    """Numbers by a text that several may share, in 8 bytes each; the texts themselves are not kept."""

    def __init__(self) -> None:
        from array import array  # here: what writes has only the numbers, and is in a hurry

        self._found = array("Q")
        self._is_sorted = True

    def add(self, text: str, number: int) -> None:
        """Puts `number` in, under `text`; none that needs more than 32 bits."""
        if number <= _LOW:
            self._found.append((hash(text) & _LOW) << _BITS | number)
            self._is_sorted = False

    def of(self, text: str) -> Iterator[int]:
        """The numbers under `text`, ascending; seldom one of another text is among them."""
        from bisect import bisect_left

        if not self._is_sorted:
            self._found, self._is_sorted = type(self._found)("Q", sorted(self._found)), True
        mark = hash(text) & _LOW
        for place in range(bisect_left(self._found, mark << _BITS), len(self._found)):
            if self._found[place] >> _BITS != mark:
                return
            yield self._found[place] & _LOW
