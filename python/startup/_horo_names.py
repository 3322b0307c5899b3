"""Finds Horovod's names in the package horo: `import horovod` where there is no Horovod.

Every Python of the environment runs this at its start, by horo_names.pth: it imports nothing that is not loaded by
then, and costs a fraction of a millisecond. The finder stands behind all others, so that an installed Horovod wins;
HORO_SHADOW_HOROVOD=1 puts it in front.
"""

import sys
from os import environ

_ABSENT = {"_keras", "mxnet", "data"}


def _folder() -> str:
    from importlib.util import find_spec

    found = find_spec("horo")
    if found is None or not found.submodule_search_locations:
        raise ModuleNotFoundError("the names of horovod are in the package horo, which is not there", name="horo")
    return f"{next(iter(found.submodule_search_locations))}/horovod"


class HorovodNames:
    """The package horovod. Its modules are then found in its folder, as those of any package."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> object:
        if name != "horovod":
            return None
        from importlib.util import spec_from_file_location

        folder = _folder()
        return spec_from_file_location(name, f"{folder}/__init__.py", submodule_search_locations=[folder])


class AbsentNames:
    """Says why a module of horovod is not there. Asked when nobody else has found it."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        if not name.startswith("horovod."):
            return
        parent = sys.modules.get("horovod")
        if parent is not None and getattr(parent, "__file__", None) is None:
            # A folder without __init__.py counts as a package, and comes before what finders at the end offer.
            place = ", ".join(getattr(parent, "__path__", ()))
            why = f"the folder {place} hides the names of horovod that horo has; HORO_SHADOW_HOROVOD=1 goes before it"
            raise ModuleNotFoundError(f"No module named '{name}': {why}", name=name)
        if name.split(".")[1] in _ABSENT and path is not None and list(path) == [_folder()]:
            why = "this horovod is horo's, which has horovod.torch, .tensorflow, .keras, .ray and .spark, and not this"
            raise ModuleNotFoundError(f"No module named '{name}': {why}", name=name)


def _install() -> None:
    if HorovodNames in sys.meta_path:
        return
    shadow = environ.get("HORO_SHADOW_HOROVOD", "").lower() in ("1", "true", "yes", "on")
    sys.meta_path.insert(0 if shadow else len(sys.meta_path), HorovodNames)
    sys.meta_path.append(AbsentNames)


_install()
