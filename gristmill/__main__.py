"""`python -m gristmill`, the same as the command `gristmill`."""

from gristmill.cli import main

main()
