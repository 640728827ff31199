"""What README shows runs as it stands there."""

import os
import re
import subprocess
import sys
from pathlib import Path

from gristmill.grammar.bounds import bounds_of
from gristmill.grammar.constraint import bad_examples, constraint_for
from gristmill.schema import load_schema
from gristmill.settings import OTHERS, Settings

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PYTHON = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)


def test_the_python_example(embedded: Path, tmp_path: Path) -> None:
    """The script of the API section prints one result a record."""
    script = tmp_path / "script.py"
    script.write_text(PYTHON[0])
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=True, env=os.environ)
    lines = sorted(line for line in done.stdout.splitlines() if line)
    assert [line.split()[0] for line in lines] == ["0", "1"]
    assert all("verdict=" in line for line in lines)


def test_the_schema_example(tmp_path: Path) -> None:
    """The schema file of README loads, and its example can be written under its grammar."""
    (tmp_path / "event.py").write_text(PYTHON[1])
    schema = load_schema("event", tmp_path)
    constraint = constraint_for(schema)
    assert bad_examples(schema, constraint) == []
    assert bounds_of(constraint.tree).endless == ()


def test_every_setting_is_listed() -> None:
    """The settings table names every setting."""
    listed = set(re.findall(r"`GRISTMILL_(\w+)` \|", README))
    assert listed == {name.upper() for name in Settings.model_fields} | OTHERS.keys()


def test_every_fault_is_listed() -> None:
    """The table of faults names every code."""
    from gristmill.faults import FaultCode

    table = README.split("## What can go wrong with a record")[1].split("##")[0]
    assert set(re.findall(r"`(\w+)`", table)) == {code.value for code in FaultCode}
