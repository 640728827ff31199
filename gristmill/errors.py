"""Errors that stop a run, as opposed to faults (`gristmill.faults`), which concern one record."""


class GristmillError(Exception):
    """Base of all errors that Gristmill raises on purpose.

    The message names the value, what follows from it and the way out, in one line.
    """


class SetupError(GristmillError):
    """A setting, file or model that the run needs is missing or unusable: mend it, then run again."""


class SchemaError(SetupError):
    """A schema can't be found, imported or compiled: mend the schema file."""


class ModelError(SetupError):
    """A model directory is incomplete, or the model can't run on this device: choose another or mend it."""


class InputError(SetupError):
    """An input file can't be read at all: mend it or its rights; it stays where it is."""


class StorageError(GristmillError):
    """The data folder or database refuses to be read or written: free space or rights, then run again."""


class InvariantError(GristmillError):
    """Counts that must agree do not: accepted + queued + dead + unfinished is not the number of lines."""
