"""Named tuples and closed sets of words, declared as with `typing` and `enum` and without their price at every start.

To load `enum` with what it needs takes as long as starting half an interpreter, `typing` as long again, and
`collections.namedtuple` compiles a function for every class. To a type checker these are `typing.NamedTuple` and
`enum.StrEnum`; at run time they do the same as far as it is used here.
"""

from __future__ import annotations

# Objects of a class that are made one field after the other: to compile what sorts arguments into fields costs as much
# as a hundred of them, and of most classes a quick command makes one.
_FEW = 64

TYPE_CHECKING = False
if TYPE_CHECKING:
    from enum import StrEnum as StrEnum
    from typing import NamedTuple as NamedTuple
else:
    try:
        from _collections import _tuplegetter as _getter
    except ImportError:  # no public name: an interpreter may be without it

        def _getter(index, about):
            return property(lambda self: tuple.__getitem__(self, index), doc=about)

    class _Fields(tuple):
        """What all named tuples have in common; `_fields` and `_field_defaults` are those of the class."""

        __slots__ = ()

        def __new__(cls, *given, **named):
            fields = cls._fields
            made = cls._made
            made[0] += 1
            if made[0] <= _FEW:
                if len(given) == len(fields) and not named:
                    return tuple.__new__(cls, given)
                missing = fields[len(given) :]
                known = {**cls._field_defaults, **named}
                rest = [known[each] for each in missing if each in known]
                if len(given) + len(rest) == len(fields) and named.keys() <= {*missing}:
                    return tuple.__new__(cls, (*given, *rest))
            # Two threads make the same twice. What is called wrongly is told so by it, too.
            fields = ", ".join(fields)
            make = eval(f"lambda _cls, {fields}: _tuple(_cls, ({fields},))", {"_tuple": tuple.__new__})
            make.__defaults__ = tuple(cls._field_defaults.values())
            cls.__new__ = staticmethod(make)
            return make(cls, *given, **named)

        def _replace(self, /, **changes):
            # In the time of what is changed: the fold of a run is long, and changes often.
            values, places = list(self), self._places
            try:
                for field, value in changes.items():
                    values[places[field]] = value
            except KeyError:
                raise ValueError(f"Got unexpected field names: {[*changes.keys() - places.keys()]!r}") from None
            return tuple.__new__(type(self), values)

        def _asdict(self):
            return dict(zip(self._fields, self, strict=True))

        def __repr__(self):
            return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self._asdict().items())})"

        def __getnewargs__(self):
            return tuple(self)

    class _Declared(type):
        """Makes of a class with annotated fields the tuple that it declares."""

        def __new__(cls, name, bases, body):
            fields = body["_fields"] = body["__match_args__"] = tuple(body.get("__annotations__", ()))
            # Those of the last fields: a type checker refuses any other order.
            body["_field_defaults"] = {field: body.pop(field) for field in fields if field in body}
            body["_made"] = [0]
            body["_places"] = places = {field: place for place, field in enumerate(fields)}
            getters = {field: _getter(place, "a field") for field, place in places.items()}
            return type(name, (_Fields,), {"__slots__": ()} | body | getters)

    NamedTuple = type.__new__(_Declared, "NamedTuple", (), {})

    class _Words(type):
        """Makes of a class with texts as its attributes the set of these texts, in their order, each with its name."""

        def __new__(cls, name, bases, body):
            words = {each: text for each, text in body.items() if type(text) is str and not each.startswith("_")}
            made = type.__new__(cls, name, bases, body | {"__members__": {}})
            for each, text in words.items():
                member = str.__new__(made, text)
                member.name, member.value = each, text
                made.__members__[each] = member
                setattr(made, each, member)
            made._of_text = {member.value: member for member in made}
            return made

        def __call__(cls, text):
            try:
                return cls._of_text[text]
            except (KeyError, TypeError):
                raise ValueError(f"{text!r} is not a valid {cls.__qualname__}") from None

        def __iter__(cls):
            return iter(cls.__members__.values())

        def __len__(cls):
            return len(cls.__members__)

        def __contains__(cls, text):
            return isinstance(text, str) and text in cls._of_text

    class StrEnum(str, metaclass=_Words):
        """A text out of a closed set: `value` is the plain text, `name` what the set calls it."""

        def __repr__(self):
            return f"<{type(self).__name__}.{self.name}: {self.value!r}>"

        def __reduce_ex__(self, protocol):
            return type(self), (self.value,)
