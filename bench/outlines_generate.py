"""Outlines' own batch generation over transformers, as its documentation shows it."""

import json
import time
import warnings

STARTED = time.perf_counter()
# Outlines feeds the padding of ended rows to their matchers and warns of each.
warnings.filterwarnings("ignore", message="Error in LLMatcher")

import outlines  # noqa: E402
import torch  # noqa: E402
from outlines.types import JsonSchema  # noqa: E402
from transformers import AutoModelForCausalLM, AutoTokenizer  # noqa: E402
from workload import NEW_TOKENS, arguments, say  # noqa: E402

BATCH = 32


def main() -> None:
    """One pass in batches of 32; the prompts come rendered, from the file that the driver wrote."""
    options = arguments()
    with open(options.prompts, encoding="utf-8") as file:  # noqa: PTH123 - a plain path given by the driver
        work = json.load(file)
    device = "cuda" if options.device == "auto" and torch.cuda.is_available() else options.device.replace("auto", "cpu")
    tokenizer = AutoTokenizer.from_pretrained(work["model"], padding_side="left")
    network = AutoModelForCausalLM.from_pretrained(work["model"], dtype=getattr(torch, options.dtype)).to(device)
    model = outlines.from_transformers(network, tokenizer)
    generator = outlines.Generator(model, JsonSchema(work["json_schema"]), backend="llguidance")
    ready = time.perf_counter()
    texts: list[str] = []
    for start in range(0, len(work["prompts"]), BATCH):
        texts += generator.batch(work["prompts"][start : start + BATCH], max_new_tokens=NEW_TOKENS, do_sample=False)
    seconds = time.perf_counter() - ready
    say(records_per_second=len(texts) / seconds, start_seconds=ready - STARTED, valid=sum(map(_is_json, texts)))


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


if __name__ == "__main__":
    main()
