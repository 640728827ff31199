"""The tagger: from the state of each word to the run of words that a field's value is.

Words are labelled as beginning, continuing or being outside of a field's run (Ramshaw and Marcus 1995,
https://arxiv.org/abs/cmp-lg/9505040) by a multinomial logistic regression over the states, and the best sequence of
labels is found with the transitions that the examples have (Viterbi). How strongly the regression is held back, and how
much transitions count, is chosen by cross-validation over the examples.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

Run = tuple[int, int, int]
"""A field's number and its run of words: the first one, and the one behind the last."""

OUTSIDE = 0
_PENALTIES = (1e-5, 3e-5, 1e-4)
_WEIGHTS = (0.0, 0.3, 0.6, 1.0)
_FOLDS = 5
_SMOOTHING = 0.1
_STEPS = 60
_NEVER = -1e9


@dataclass(frozen=True)
class Quality:
    """How well the examples are read from each other, by cross-validation: counts of runs."""

    right: int
    wrong: int
    missed: int

    @property
    def f1(self) -> float:
        """Micro-averaged F1, 0 to 1."""
        return 2 * self.right / max(1, 2 * self.right + self.wrong + self.missed)


@dataclass(frozen=True)
class Tagger:
    """A fitted tagger for fields 0 to `fields` - 1; `quality` is what to expect of it."""

    fields: int
    quality: Quality
    _mean: Tensor
    _scale: Tensor
    _weights: Tensor
    _transitions: Tensor

    def runs(self, vectors: Tensor) -> list[tuple[Run, float]]:
        """The runs in a text's words, in order, with the mean log-probability of their labels; vectors are [words,
        features]."""
        if not len(vectors):
            return []
        rated = torch.log_softmax(_with_one((vectors - self._mean) * self._scale) @ self._weights, -1)
        path = _best_path(rated, self._transitions)
        return [
            (run, float(rated[range(run[1], run[2]), path[run[1] : run[2]]].mean())) for run in _runs_of_labels(path)
        ]


def fit(vectors: Sequence[Tensor], runs: Sequence[Sequence[Run]], fields: int) -> Tagger:
    """Fit a tagger to examples: for each the vectors of its words [words, features], and the runs in it."""
    stacked = torch.cat(list(vectors))
    mean = stacked.mean(0)
    scale = 1 / ((stacked.std(0, correction=0) + 1e-3) * stacked.shape[1] ** 0.5)
    features = (stacked - mean) * scale
    # With fewer words than features the fit lies in the space of the words: exact, and quicker.
    basis = _basis(features) if len(features) < features.shape[1] else None
    reduced = features @ basis if basis is not None else features
    sizes = [len(each) for each in vectors]
    parts = list(torch.split(_with_one(reduced), sizes))
    labels = [_labels(size, mine) for size, mine in zip(sizes, runs, strict=True)]
    penalty, weight, quality = _chosen(parts, labels, runs, fields)
    weights = _regression(torch.cat(parts), torch.cat(labels), fields, penalty)
    if basis is not None:
        weights = torch.cat([basis @ weights[:-1], weights[-1:]])
    return Tagger(fields, quality, mean, scale, weights, _transitions(labels, fields) * weight + _allowed(fields))


def _chosen(
    parts: list[Tensor], labels: list[Tensor], runs: Sequence[Sequence[Run]], fields: int
) -> tuple[float, float, Quality]:
    """Penalty and weight of transitions under which the examples are read best from each other."""
    folds = min(_FOLDS, len(parts))
    if folds < 2:
        return _PENALTIES[0], _WEIGHTS[1], Quality(0, 0, 0)
    counts = {(penalty, weight): [0, 0, 0] for penalty in _PENALTIES for weight in _WEIGHTS}
    allowed = _allowed(fields)
    for fold in range(folds):
        mine = [i for i in range(len(parts)) if i % folds != fold]
        features, wanted = torch.cat([parts[i] for i in mine]), torch.cat([labels[i] for i in mine])
        seen = _transitions([labels[i] for i in mine], fields)
        weights = None
        # From the strongest penalty to the weakest, each from where the last one ended.
        for penalty in sorted(_PENALTIES, reverse=True):
            weights = _regression(features, wanted, fields, penalty, weights)
            for i in range(fold, len(parts), folds):
                rated = torch.log_softmax(parts[i] @ weights, -1)
                for weight in _WEIGHTS:
                    path = _best_path(rated, seen * weight + allowed) if len(rated) else []
                    got, right = set(_runs_of_labels(path)), set(runs[i])
                    for at, number in enumerate((len(got & right), len(got - right), len(right - got))):
                        counts[penalty, weight][at] += number
    found = {key: Quality(*count) for key, count in counts.items()}
    # Among equals the one that is held back more.
    best = max(found, key=lambda key: (round(found[key].f1, 4), key))
    return *best, found[best]


def _basis(features: Tensor) -> Tensor:
    """An orthonormal basis [features, rank] of the space that the words [words, features] span."""
    values, vectors = torch.linalg.eigh(features @ features.T)
    kept = values > values.max() * 1e-6
    basis: Tensor = features.T @ (vectors[:, kept] / values[kept].sqrt())
    return basis


def _with_one(features: Tensor) -> Tensor:
    return torch.cat([features, features.new_ones(len(features), 1)], dim=1)


def _labels(words: int, runs: Sequence[Run]) -> Tensor:
    labels = torch.full((words,), OUTSIDE)
    for field, first, last in runs:
        labels[first:last] = 2 + 2 * field
        labels[first] = 1 + 2 * field
    return labels


def _regression(features: Tensor, labels: Tensor, fields: int, penalty: float, start: Tensor | None = None) -> Tensor:
    """Weights [features, labels]; the last feature is 1 and its weights are not held back."""
    weights = torch.zeros((features.shape[1], 1 + 2 * fields)) if start is None else start.clone()
    weights.requires_grad_()
    optimizer = torch.optim.LBFGS([weights], max_iter=_STEPS, history_size=20, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimizer.zero_grad()
        value = torch.nn.functional.cross_entropy(features @ weights, labels) + penalty * weights[:-1].square().sum()
        value.backward()  # type: ignore[no-untyped-call]
        return value

    with torch.enable_grad():
        optimizer.step(loss)  # type: ignore[no-untyped-call]
    return weights.detach()


def _transitions(labels: Sequence[Tensor], fields: int) -> Tensor:
    """Log-probabilities [1 + labels, labels] that one label follows another; the last row is the start of a text."""
    size = 1 + 2 * fields
    counts = torch.full((size + 1, size), _SMOOTHING)
    for sequence in labels:
        before = size
        for label in sequence.tolist():
            counts[before, label] += 1
            before = label
    return (counts / counts.sum(1, keepdim=True)).log()


def _allowed(fields: int) -> Tensor:
    """0 where a label may follow another, else as good as minus infinity: a run goes on only within its field."""
    size = 1 + 2 * fields
    mask = torch.zeros((size + 1, size))
    for field in range(fields):
        inside = 2 + 2 * field
        mask[:, inside] = _NEVER
        mask[[inside - 1, inside], inside] = 0.0
    return mask


def _best_path(rated: Tensor, transitions: Tensor) -> list[int]:
    """The most probable labels of a text, from log-probabilities [words, labels]."""
    between, score = transitions[:-1], transitions[-1] + rated[0]
    back = []
    for row in rated[1:]:
        score, before = (score.unsqueeze(1) + between).max(0)
        score = score + row
        back.append(before)
    path = [int(score.argmax())]
    for before in reversed(back):
        path.append(int(before[path[-1]]))
    return path[::-1]


def _runs_of_labels(path: Sequence[int]) -> list[Run]:
    runs: list[Run] = []
    for at, label in enumerate(path):
        if label == OUTSIDE:
            continue
        if label % 2 == 0 and runs and runs[-1][0] == (label - 2) // 2 and runs[-1][2] == at:
            runs[-1] = (runs[-1][0], runs[-1][1], at + 1)
        else:
            runs.append(((label - 1) // 2, at, at + 1))
    return runs
