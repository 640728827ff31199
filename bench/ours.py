"""One of our engines over the workload, in a process of its own."""

import time

STARTED = time.perf_counter()

from workload import arguments, say, ticket_requests  # noqa: E402

from gristmill.checking import check  # noqa: E402
from gristmill.engine import Candidate  # noqa: E402
from gristmill.engine.fast import FastEngine  # noqa: E402
from gristmill.engine.loading import load_model  # noqa: E402
from gristmill.engine.reference import ReferenceEngine  # noqa: E402
from gristmill.faults import Fault  # noqa: E402


def main() -> None:
    """The first pass is cold, as a batch job is; a second of the fast engine shows what stays warm."""
    options = arguments()
    requests = ticket_requests(options.records)
    loaded = load_model(options.model, options.device, options.dtype, quantize=options.quantize)
    engine: FastEngine | ReferenceEngine
    if options.engine == "reference":
        engine = ReferenceEngine(loaded)
    else:
        engine = FastEngine(loaded, max_rows=options.rows, fast_forward=not options.no_fast_forward)
    ready = time.perf_counter()
    first, seconds, outcomes = 0.0, [], []
    for _ in range(1 if options.engine == "reference" else 2):
        began = time.perf_counter()
        outcomes = []
        for outcome in engine.generate(requests, lambda _: None):
            first = first or time.perf_counter() - STARTED
            outcomes.append(outcome)
        seconds.append(time.perf_counter() - began)
    candidates = [o for o in outcomes if isinstance(o, Candidate)]
    by_key = {request.key: request for request in requests}
    valid = sum(not isinstance(check(c.text, c.finish_reason, by_key[c.key].schema, str), Fault) for c in candidates)
    written = sum(c.completion_tokens for c in candidates)
    say(
        records_per_second=options.records / seconds[0],
        warm_records_per_second=options.records / seconds[-1],
        tokens_per_second=written / seconds[0],
        start_seconds=ready - STARTED,
        first_result_seconds=first,
        valid=valid,
        completion_tokens=written,
        tokens_fed=getattr(engine, "tokens_fed", 0) // len(seconds),
        steps=getattr(engine, "steps", 0) // len(seconds),
        device=engine.model.device,
    )


if __name__ == "__main__":
    main()
