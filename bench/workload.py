"""The workload that all engines are given: prompts as text, and the grammar's JSON Schema."""

import argparse
import dataclasses
import json
import resource
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
NEW_TOKENS = 160


def arguments() -> argparse.Namespace:
    """The options that every engine's script takes."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="embedded")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--records", type=int, default=64)
    parser.add_argument("--rows", type=int, default=64, help="rows at once in our fast engine and in vLLM")
    parser.add_argument("--quantize", default="none", choices=["none", "int8"])
    parser.add_argument("--no-fast-forward", action="store_true", help="our fast engine samples forced tokens too")
    parser.add_argument("--engine", default="", help="fast: our fast engine alone, and vLLM if it is there")
    parser.add_argument("--prompts", default="")
    return parser.parse_args()


def ticket_requests(count: int) -> list[Any]:
    """Requests for the shortest sample messages; beyond those, the same again under other ids."""
    from gristmill.engine import Request
    from gristmill.options import Options
    from gristmill.presets import PRESETS
    from gristmill.records import Record, read_lines
    from gristmill.schema import load_schema

    schema = load_schema("ticket", ROOT / "schemas")
    # Other engines have no verbatim fields: all are given the same grammar.
    schema = dataclasses.replace(schema, examples=schema.examples[:1], options=Options(verbatim=False))
    preset = dataclasses.replace(PRESETS["extract"], max_new_tokens=NEW_TOKENS)
    found = [
        line.content
        for path in sorted((ROOT / "data" / "samples" / "ticket").glob("*.jsonl"))
        for line in read_lines(path.open("rb"), path.stem)
    ]
    records = sorted((r for r in found if isinstance(r, Record)), key=lambda r: len(r.text))[:64]
    chosen = [
        dataclasses.replace(records[i % len(records)], id=f"{records[i % len(records)].id}-{i}") for i in range(count)
    ]
    return [Request(i, record, schema, preset, NEW_TOKENS) for i, record in enumerate(chosen)]


def say(**values: Any) -> None:
    """Print one engine's figures as the last line of its output."""
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"peak_rss_mb": round(peak_mb), **values}))
    sys.stdout.flush()
