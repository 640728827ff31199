"""`python -m flows.NAME`: a flow's parameters as options, run once without a server of one's own."""

import argparse
import inspect
import sys
from typing import Any

from prefect import Flow
from pydantic.fields import FieldInfo

from gristmill.errors import GristmillError


def run_flow(flow: Flow[..., Any]) -> None:
    """Run the flow with the command line's options; exit status 2 and one line where the set-up is at fault."""
    parser = argparse.ArgumentParser(prog=f"python -m flows.{flow.fn.__name__}", description=flow.description)
    for name, parameter in inspect.signature(flow.fn).parameters.items():
        help_text = next(m.description for m in parameter.annotation.__metadata__ if isinstance(m, FieldInfo))
        option = f"--{name.replace('_', '-')}"
        if parameter.default is False:
            parser.add_argument(option, action="store_true", help=help_text)
        else:
            parser.add_argument(option, help=help_text)
    options = vars(parser.parse_args())
    try:
        flow(**options)
    except GristmillError as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        sys.exit(2)
