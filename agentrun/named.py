"""Named tuples, declared as with `typing.NamedTuple` and without its price at every start.

Loading `typing` takes half as long as starting the interpreter, and its NamedTuple compiles the annotation of each
field. No quick command reads annotations: to a type checker this is `typing.NamedTuple`, at run time
`collections.namedtuple` with the methods of the class.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NamedTuple as NamedTuple
else:
    from collections import namedtuple

    class _Declared(type):
        """Makes of a class with annotated fields the tuple that it declares."""

        def __new__(cls, name, bases, body):
            fields = tuple(body.get("__annotations__", ()))
            # Those of the last fields: a type checker refuses any other order.
            defaults = [body.pop(field) for field in fields if field in body]
            made = namedtuple(name, fields, defaults=defaults, module=body["__module__"])
            made._replace = _replacing(fields)
            for attribute, value in body.items():
                setattr(made, attribute, value)
            return made

    def _replacing(fields):
        """As namedtuple's `_replace`, in the time of what is changed: the fold of a run is long, and changes often."""
        places = {field: place for place, field in enumerate(fields)}

        def _replace(self, /, **changes):
            values = list(self)
            try:
                for field, value in changes.items():
                    values[places[field]] = value
            except KeyError:
                unknown = [field for field in changes if field not in places]
                raise ValueError(f"Got unexpected field names: {unknown!r}") from None
            return tuple.__new__(type(self), values)

        return _replace

    NamedTuple = type.__new__(_Declared, "NamedTuple", (), {})
