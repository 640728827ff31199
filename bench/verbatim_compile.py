"""What the grammar of a verbatim field costs: milliseconds to compile it for texts of 500 and 8,000 words.

Run alone: `python bench/verbatim_compile.py`. The last line is JSON with the median of each.
"""

import json
import random
import statistics
import time
from typing import Annotated

from llguidance import LLMatcher, LLTokenizer
from pydantic import BaseModel

from gristmill import Verbatim
from gristmill.grammar.constraint import constraint_for
from gristmill.schema import schema_of

TIMES = 21


class Exact(BaseModel):
    """As it stands."""

    value: Annotated[str, Verbatim()]


class Loose(BaseModel):
    """In any case."""

    value: Annotated[str, Verbatim(ignore_case=True, collapse_whitespace=True)]


def main() -> None:
    """Measure and print."""
    tokenizer = LLTokenizer("byte")
    found = {}
    for model in (Exact, Loose):
        constraint = constraint_for(schema_of(model))
        for words in (500, 8000):
            took = []
            for seed in range(TIMES):
                text = random_text(words, seed)
                began = time.perf_counter()
                matcher = LLMatcher(tokenizer, constraint.grammar(text))
                took.append(1000 * (time.perf_counter() - began))
                if matcher.is_error():
                    raise SystemExit(matcher.get_error())
            name = f"{model.__name__.lower()}_{words}_words_ms"
            found[name] = round(statistics.median(took), 2)
            print(f"{name:<24} median {found[name]:8.2f}   from {min(took):8.2f} to {max(took):8.2f}")
    print(json.dumps(found))


def random_text(words: int, seed: int) -> str:
    """Words of 2 to 8 letters with sentences' ends between them."""
    choose = random.Random(seed)  # noqa: S311 - words to measure with
    letters = "abcdefghijklmnopqrstuvwxyz"
    made = ["".join(choose.choice(letters) for _ in range(choose.randint(2, 8))) for _ in range(words)]
    return " ".join(word + choose.choice(["", "", "", "", ",", "."]) for word in made)


if __name__ == "__main__":
    main()
