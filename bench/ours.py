"""One of our engines over the workload, in a process of its own."""

import time

STARTED = time.perf_counter()

from workload import arguments, say, ticket_requests  # noqa: E402

from gristmill.checking import check  # noqa: E402
from gristmill.engine import Candidate, engine_for  # noqa: E402
from gristmill.faults import Fault  # noqa: E402


def main() -> None:
    """The first pass is cold, as a batch job is; a second of the fast engine shows what stays warm."""
    options = arguments()
    requests = ticket_requests(options.records)
    engine = engine_for(options.model, device=options.device, dtype=options.dtype, way=options.engine)
    first, seconds = 0.0, []
    outcomes = []
    for _ in range(2 if options.engine == "fast" else 1):
        began = time.perf_counter()
        outcomes = []
        for outcome in engine.generate(requests, lambda _: None):
            first = first or time.perf_counter() - STARTED
            outcomes.append(outcome)
        seconds.append(time.perf_counter() - began)
    candidates = [o for o in outcomes if isinstance(o, Candidate)]
    valid = sum(
        not isinstance(check(c.text, c.finish_reason, requests[c.key].schema.model, ""), Fault) for c in candidates
    )
    say(
        records_per_second=options.records / seconds[0],
        warm_records_per_second=options.records / seconds[-1],
        first_result_seconds=first,
        valid=valid,
        completion_tokens=sum(c.completion_tokens for c in candidates),
        tokens_fed=getattr(engine, "tokens_fed", 0) // len(seconds),
        steps=getattr(engine, "steps", 0) // len(seconds),
        device=engine.model.device,
    )


if __name__ == "__main__":
    main()
