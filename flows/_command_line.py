"""`python -m flows.NAME`: a flow's parameters as options, run once without a server of one's own."""

import argparse
import sys
from typing import Any

from prefect import Flow

from gristmill.errors import GristmillError


def run_flow(flow: Flow[..., Any]) -> None:
    """Run the flow with the command line's options; exit status 2 and one line where the set-up is at fault."""
    summary = (flow.description or "").splitlines()[0]
    parser = argparse.ArgumentParser(prog=f"python -m flows.{flow.fn.__name__}", description=summary)
    for name, described in flow.parameters.properties.items():
        option = f"--{name.replace('_', '-')}"
        if described.get("type") == "boolean":
            parser.add_argument(option, action="store_true", help=described["description"])
        else:
            parser.add_argument(option, help=described["description"])
    try:
        flow(**vars(parser.parse_args()))
    except GristmillError as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        sys.exit(2)
