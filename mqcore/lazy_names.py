"""Names that a package has, and whose modules are imported when somebody asks for one of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def by_name(places: Mapping[str, str]) -> dict[str, str]:
    """Return the place of each name, of a table that says for each module which names are in it.

    ``Here=There`` is one that the module calls There.
    """
    words = [(module, *word.partition("=")) for module, names in places.items() for word in names.split()]
    return {name: f"{module}:{there or name}" for module, name, _, there in words}


def lazy_names(package: dict[str, Any], places: Mapping[str, str]) -> Callable[[str], Any]:
    """Return what is to be the ``__getattr__`` of the package with the globals *package*.

    *places* says in which module each name is, with ``:`` and what it is called there, if that is something else; a
    name that is a module itself is in none (""). What has been asked for once is in the globals from then on. For type
    checkers the same imports stand beside it, under TYPE_CHECKING.
    """

    def find(name: str) -> Any:
        place = places.get(name)
        if place is None:
            raise AttributeError(f"module {package['__name__']!r} has no attribute {name!r}")
        if not place:
            return import_module(f"{package['__name__']}.{name}")  # the import itself puts it there
        module, _, there = place.partition(":")
        package[name] = found = getattr(import_module(module), there or name)
        return found

    return find
