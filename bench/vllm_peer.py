"""vLLM over the same prompts; runs under the interpreter of an environment of its own and imports nothing of ours."""

import json
import resource
import sys
import time

STARTED = time.perf_counter()

from vllm import LLM, SamplingParams  # noqa: E402
from vllm.sampling_params import StructuredOutputsParams  # noqa: E402


def main() -> None:
    """Two passes: the first cold, the second with every prompt cached."""
    with open(sys.argv[1], encoding="utf-8") as file:  # noqa: PTH123 - a plain path given by the driver
        work = json.load(file)
    llm = LLM(
        model=work["model"],
        dtype=work["dtype"],
        max_num_seqs=int(sys.argv[2]),
        max_model_len=2048,
        enable_prefix_caching=True,
        structured_outputs_config={"backend": "xgrammar", "disable_any_whitespace": True},
    )
    schema = json.loads(work["json_schema"])
    schema.pop("x-guidance", None)
    parameters = SamplingParams(
        temperature=0.0, max_tokens=work["new_tokens"], structured_outputs=StructuredOutputsParams(json=schema)
    )
    ready = time.perf_counter()
    seconds = []
    for _ in range(2):
        began = time.perf_counter()
        done = llm.generate(work["prompts"], parameters, use_tqdm=False)
        seconds.append(time.perf_counter() - began)
    count = len(work["prompts"])
    written = sum(len(d.outputs[0].token_ids) for d in done)
    print(
        json.dumps(
            {
                "records_per_second": count / seconds[0],
                "warm_records_per_second": count / seconds[1],
                "start_seconds": ready - STARTED,
                "tokens_per_second": written / seconds[0],
                "completion_tokens": written,
                "valid": sum(d.outputs[0].finish_reason == "stop" for d in done),
                "peak_rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
            }
        )
    )


if __name__ == "__main__":
    main()
