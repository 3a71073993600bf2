"""Why a framework's package cannot be imported, in words.

The packages run this file by its path, because the `shared` that Python finds may be the user's.
"""

from importlib.util import find_spec
from pathlib import Path


def explained(error: ImportError, package: str, extra: str) -> ImportError:
    """The error to raise in place of one from a package's first imports. extra: the pip extra that it needs."""
    ours, spec = Path(__file__).resolve().parent, find_spec("shared")
    places = (spec.submodule_search_locations or [spec.origin]) if spec else []
    theirs = [place for place in places if place and Path(place).resolve() != ours]
    if theirs:
        return ImportError(
            f"{package} needs the package shared in {ours}, but Python finds {theirs[0]} first: rename that one, or if "
            "you do not import it leave its folder out of sys.path (python -P leaves out that of the script)"
        )
    name = (error.name or extra).partition(".")[0]
    if name not in ("shared", "jax_impl", "torch_impl"):
        return ModuleNotFoundError(
            f"{package} needs {name} ({error}): install it, or this package with its extra [{extra}]"
        )
    return error
