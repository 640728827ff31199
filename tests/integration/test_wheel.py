"""What the wheel holds: the library, and nothing with a name as general as `tasks`."""

import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_wheel_holds_the_library_only(tmp_path: Path) -> None:
    """Every file of the wheel is the package's or its metadata; template, type marker and licence are among them."""
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*command, "--wheel-dir", str(tmp_path), str(ROOT)], check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in names} == {"gristmill", "gristmill-0.1.0.dist-info"}
    assert {"gristmill/py.typed", "gristmill/report/page.html.j2"} <= set(names)
    assert any(name.endswith("licenses/LICENSE") for name in names)
