"""Modules that have moved are imported by their old names as before: one module with two names.

Whoever has moved some gives a table of whole names. Each import by an old name says by a DeprecationWarning what the
module is called now. Pickles are read by them, too, and ``python -m`` runs them.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import CodeType, ModuleType
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from importlib.abc import Loader


class MovedModules:
    """Finds and loads modules by their old names. It is asked last, when nothing of the name is in its old place.

    Its bases would be in importlib.abc, which takes as long to import as ten modules of ours.
    """

    def __init__(self) -> None:
        self.names: dict[str, str] = {}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return ModuleSpec(fullname, cast("Loader", self)) if fullname in self.names else None

    def create_module(self, spec: ModuleSpec) -> None:
        """Take the usual empty module; it is given up at once."""

    def exec_module(self, module: ModuleType) -> None:
        name = module.__name__
        now = self.names[name]
        warnings.warn(f"{name} is {now} now", DeprecationWarning, stacklevel=2)
        # What stands there when this returns is what the import gives: the very same module, and not a copy.
        sys.modules[name] = import_module(now)

    def get_code(self, fullname: str) -> CodeType | None:
        """Return what ``python -m`` runs by an old name: lines that run the module by the one that it has now."""
        now = self.names[fullname]
        # By a line of the program itself, as whoever typed the name is to see it.
        lines = f"""
import runpy, warnings
warnings.warn("{fullname} is {now} now", DeprecationWarning, stacklevel=1)
runpy.run_module("{now}", run_name=__name__, alter_sys=True)
"""
        return compile(lines, f"<{fullname}>", "exec")


def install(names: Mapping[str, str]) -> None:
    """Let modules be found by old names: *names* has the whole old name of each, and the whole name now.

    There is one finder in a process, which learns them.
    """
    finder = next((finder for finder in sys.meta_path if isinstance(finder, MovedModules)), None)
    if finder is None:
        finder = MovedModules()
        sys.meta_path.append(finder)
    finder.names.update(names)
