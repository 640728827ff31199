"""Similarity of texts by their words and pairs of words: which worked examples are most like a record.

Weights are term frequency times inverse document frequency, compared by cosine (Salton and Buckley 1988,
https://doi.org/10.1016/0306-4573(88)90021-0).
"""

import math
import re
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

_WORD = re.compile(r"\w+|[^\w\s]")


class Nearest:
    """Finds the texts of a collection that are most like another one."""

    def __init__(self, texts: Sequence[str]) -> None:
        counts = [_terms(text) for text in texts]
        documents = Counter(term for count in counts for term in count)
        self._unseen = math.log(1 + len(texts)) + 1
        self._weights = {term: math.log((1 + len(texts)) / (1 + n)) + 1 for term, n in documents.items()}
        self._vectors = [self._vector(count) for count in counts]

    def to(self, text: str, count: int) -> list[int]:
        """Positions of the `count` texts most like this one, the least like first; among equals the earlier counts as
        more like."""
        asked = self._vector(_terms(text))
        likeness = [sum(w * vector.get(term, 0.0) for term, w in asked.items()) for vector in self._vectors]
        ranked = sorted(range(len(likeness)), key=lambda i: (-likeness[i], i))
        return ranked[:count][::-1]

    def _vector(self, count: Counter[tuple[str, ...]]) -> dict[tuple[str, ...], float]:
        vector = {term: n * self._weights.get(term, self._unseen) for term, n in count.items()}
        size = math.sqrt(sum(w * w for w in vector.values()))
        return {term: w / size for term, w in vector.items()}


def _terms(text: str) -> Counter[tuple[str, ...]]:
    words = [word.casefold() for word in _WORD.findall(text)]
    return Counter([(word,) for word in words] + list(pairwise(words)))
