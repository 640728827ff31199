"""The table of answers' quality: `make eval`. Its last line is JSON with the F1 of each file.

On `restaurant_validate.jsonl` with examples from `restaurant_train.jsonl`, and on `us_address.jsonl`, where each fifth
has the other four for examples: the default configuration first, on all records; then, on the first `--limit` ones, one
thing changed at a time (of the addresses the others are the examples then).
"""

import argparse
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from gristmill import Options, load
from gristmill.evaluation import evaluate, examples_from, read_labelled
from gristmill.evaluation.show import as_page, as_table
from gristmill.schema import Schema, load_schema

HERE = Path(__file__).parent
EVALS = HERE.parents[2] / "shared" / "evals"
FOLDS = 5


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--evals", type=Path, default=EVALS, help="the folder of labelled texts")
    parser.add_argument("--model", default=None)
    parser.add_argument("--quick", action="store_true", help="the default configurations only")
    parser.add_argument("--limit", type=int, default=30, help="records for each of the other configurations")
    parser.add_argument("--output", type=Path, default=None, help="write a page here too")
    options = parser.parse_args()
    if not options.evals.is_dir():
        parser.error(f"no folder {options.evals}; give --evals")
    engine = load(options.model)
    restaurant = load_schema("restaurant", HERE / "schemas")
    restaurant = replace(
        restaurant, examples=examples_from(read_labelled(options.evals / "restaurant_train.jsonl")[0], restaurant)
    )
    address = load_schema("us_address", HERE / "schemas")
    files = {
        "restaurant_validate": (restaurant, 0),
        "us_address": (address, FOLDS),
    }
    rows: dict[str, dict[str, Any]] = {}
    best: dict[str, float] = {}
    for name, (schema, folds) in files.items():
        records, _ = read_labelled(options.evals / f"{name}.jsonl")
        found = evaluate(engine, schema, records, folds=folds).as_json()
        rows[f"{name}, as it comes"] = found
        best[name] = found["f1"]
        print(as_table({f"{name}, as it comes": found}), flush=True)
        asked, taught = records[: options.limit], schema
        if folds:
            taught = replace(schema, examples=examples_from(records[options.limit :], schema))
        for title, changed in () if options.quick else _others(taught):
            title = f"{name}, {title}"
            rows[title] = evaluate(engine, changed, asked).as_json()
            print(as_table({title: rows[title]}).splitlines()[1], flush=True)
    print("\n" + as_table(rows))
    if options.output:
        options.output.write_text(as_page("bench/eval", rows), encoding="utf-8")
    print(json.dumps({"f1": best, **best, "rows": {title: row["f1"] for title, row in rows.items()}}))


def _others(schema: Schema) -> Iterator[tuple[str, Schema]]:
    """Configurations that differ from one another in one thing."""
    written = Options(reading="off", examples_per_prompt=8)

    def with_options(**changes: Any) -> Schema:
        return replace(schema, options=replace(written, **changes))

    yield "written, 8 like examples", with_options()
    yield "  plain", with_options(verbatim=False)
    yield "  absent null", with_options(absent="null")
    yield "  plain, absent null", with_options(verbatim=False, absent="null")
    for count in (1, 2, 4, 16):
        yield f"  {count} like examples", with_options(examples_per_prompt=count)
    for count in (8, 16):
        few = replace(schema, examples=schema.examples[:count])
        yield f"  {count} fixed examples", replace(few, options=replace(written, examples_per_prompt=count))
        yield f"read, {count} fixed examples", replace(few, options=Options(reading="on"))


if __name__ == "__main__":
    main()
