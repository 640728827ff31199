"""Evaluation: how often answers are right, on records that carry the right answer as `gold`."""

from gristmill.evaluation.run import Evaluation, evaluate, examples_from, read_labelled
from gristmill.evaluation.score import Counts, Score

__all__ = ["Counts", "Evaluation", "Score", "evaluate", "examples_from", "read_labelled"]
