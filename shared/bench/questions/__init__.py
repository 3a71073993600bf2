"""The questions that the benchmark answers, one module each."""

from shared.bench.questions.growth import Growth
from shared.bench.questions.ladder import Ladder
from shared.bench.questions.question import Question
from shared.bench.questions.speed import Speed

QUESTIONS: dict[str, Question] = {question.name: question for question in (Speed(), Ladder(), Growth())}
