"""`make bench`: our engines, Outlines, and vLLM where it is installed, one after the other on the same work."""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from workload import NEW_TOKENS, ROOT, arguments, ticket_requests

HERE = Path(__file__).parent


def main() -> None:
    """Measure, print a table, and as the last line JSON."""
    options = arguments()
    ceiling, device = matrix_rate(options.device, options.dtype)
    with tempfile.TemporaryDirectory() as folder:
        prompts = Path(folder) / "prompts.json"
        parameters = write_work(prompts, options)
        ours = [sys.executable, str(HERE / "ours.py"), *sys.argv[1:]]
        rows = {"gristmill, fast": measured([*ours, "--engine", "fast"])}
        if not options.engine:
            rows["gristmill, reference"] = measured([*ours, "--engine", "reference"])
            plain = [sys.executable, str(HERE / "outlines_generate.py"), *sys.argv[1:], "--prompts", str(prompts)]
            rows["outlines over generate"] = measured(plain)
        vllm = os.environ.get("BENCH_VLLM")
        if vllm:
            rows["vllm"] = measured([vllm, str(HERE / "vllm_peer.py"), str(prompts), str(options.rows)])
    own = measured([sys.executable, str(HERE / "pipeline.py")])
    fast = rows["gristmill, fast"]
    # Two operations for each parameter and token.
    best_seconds = fast["tokens_fed"] * 2 * parameters / ceiling
    share = best_seconds * fast["records_per_second"] / options.records
    print(f"{options.records} records on {device}, {ceiling / 1e9:.0f} GFLOP/s in {options.dtype} matrix products")
    print(
        f"{'':<24}{'records/s':>10}{'again':>8}{'tokens/s':>10}{'valid':>7}{'start s':>9}{'first s':>9}{'peak MB':>9}"
    )
    for name, row in rows.items():
        cells = [row.get(key) for key in ("warm_records_per_second", "tokens_per_second")]
        again, tokens = ("-" if cell is None else f"{cell:.2f}" for cell in cells)
        first = row.get("first_result_seconds")
        print(
            f"{name:<24}{row['records_per_second']:>10.2f}{again:>8}{tokens:>10}{row['valid']:>7}"
            f"{row['start_seconds']:>9.1f}{'-' if first is None else f'{first:.1f}':>9}{row['peak_rss_mb']:>9}"
        )
    print(f"everything but the model: {own['own_ms_per_record']} ms a record over {own['records']} records")
    print(
        json.dumps(
            {
                "pipeline_ms_per_record": own["own_ms_per_record"],
                "records_per_second": round(fast["records_per_second"], 3),
                "warm_records_per_second": round(fast["warm_records_per_second"], 3),
                "ratio_vs_outlines": ratio(rows, "outlines over generate"),
                "ratio_vs_reference": ratio(rows, "gristmill, reference"),
                "ratio_vs_vllm": ratio(rows, "vllm"),
                "share_of_ceiling": round(share, 3),
                "peak_rss_mb": fast["peak_rss_mb"],
                "start_seconds": round(fast["start_seconds"], 2),
                "first_result_seconds": round(fast["first_result_seconds"], 2),
                "ratio_vs_vllm_tokens": ratio(rows, "vllm", "tokens_per_second"),
                "tokens_fed": fast["tokens_fed"],
                "steps": fast["steps"],
                "device": device,
            }
        )
    )


def ratio(rows: dict[str, dict[str, Any]], peer: str, rate: str = "records_per_second") -> float | None:
    """Our first pass over the peer's first pass, or None where the peer was not measured."""
    if peer not in rows:
        return None
    return round(rows["gristmill, fast"][rate] / rows[peer][rate], 3)


def measured(command: list[str]) -> dict[str, Any]:
    """Run a script and read the last line of its output that is an object; libraries may print behind it."""
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    return dict(json.loads([line for line in done.stdout.splitlines() if line.startswith("{")][-1]))


def write_work(path: Path, options: Any) -> int:
    """Write prompts and JSON Schema for engines that are not ours; the model's number of parameters."""
    from gristmill.engine.loading import load_model
    from gristmill.grammar.constraint import constraint_for
    from gristmill.models.locate import open_model
    from gristmill.prompts import messages_for

    directory = open_model(options.model)
    loaded = load_model(options.model, "cpu", options.dtype)
    requests = ticket_requests(options.records)
    tree = constraint_for(requests[0].schema).tree
    turns = [messages_for(request.schema, request.record) for request in requests]
    work = {
        "model": str(directory.path),
        "dtype": options.dtype,
        "new_tokens": NEW_TOKENS,
        "prompts": [loaded.render(one) for one in turns if isinstance(one, list)],
        "json_schema": json.dumps(
            {**tree.root.source, "$defs": dict(tree.sources), "x-guidance": {"whitespace_flexible": False}}
        ),
    }
    path.write_text(json.dumps(work), encoding="utf-8")
    return directory.parameters


def matrix_rate(device: str, dtype: str, size: int = 2048, times: int = 10) -> tuple[float, str]:
    """The best rate of square matrix products in operations per second, and the device's name."""
    import torch

    where = "cuda" if device == "auto" and torch.cuda.is_available() else device.replace("auto", "cpu")
    a, b = (torch.randn(size, size, device=where, dtype=getattr(torch, dtype)) for _ in range(2))
    best = float("inf")
    for _ in range(times):
        began = time.perf_counter()
        a @ b
        if where != "cpu":
            torch.cuda.synchronize()
        best = min(best, time.perf_counter() - began)
    name = torch.cuda.get_device_name() if where != "cpu" else f"{torch.get_num_threads()} CPU threads"
    return 2 * size**3 / best, name


if __name__ == "__main__":
    main()
