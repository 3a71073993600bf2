"""What a backend runs for each problem: an object or a module with `abilities` and `call_of`."""

from collections.abc import Callable
from types import ModuleType
from typing import Any

from shared.alignments import ALIGNMENTS
from shared.variants import Abilities, fastest_variant


class Alignment:
    """An alignment by a backend."""

    def __init__(self, backend: ModuleType, name: str) -> None:
        self._backend, self._name = backend, name

    def abilities(self, device: str) -> Abilities:
        """What the benchmark may ask for."""
        backend = self._backend
        gone = backend.absent_on(device)
        return Abilities(fastest_variant(gone), gone, backend.first_order, backend.uncompiled, backend.ready)

    def call_of(
        self, variant: str, pass_name: str, options: dict[str, Any], compiled: bool, unroll: int | None = None
    ) -> Callable[..., Any]:
        """What the benchmark times: f(similarity, lengths, **parameters), for hvp with weights after the lengths."""
        score = self._backend.function(self._name, variant, options, unroll)
        return self._backend.pass_function(pass_name, score, compiled)


def programs(backend: ModuleType, **others: ModuleType) -> dict[str, Any]:
    """By problem: the alignments, and the modules of the other problems by their names."""
    return {**{name: Alignment(backend, name) for name in ALIGNMENTS}, **others}
