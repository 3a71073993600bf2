"""The questions that the benchmark answers, a module of this package each."""

from importlib import import_module

from shared.bench.questions.question import Question

_MODULES = ("speed", "ladder", "growth", "shapes", "memory", "threads", "processes", "between", "graphs", "bridge",
            "versions", "transforms", "learning")  # fmt: skip
QUESTIONS: dict[str, Question] = {name: import_module(f"{__name__}.{name}").QUESTION for name in _MODULES}
