"""What all tests share: the databases that the store runs on."""

from collections.abc import Iterator

import pytest

from tests.postgres import Server, server


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    """A PostgreSQL server; where none is installed, the test is skipped."""
    try:
        with server() as running:
            yield running
    except LookupError as error:
        pytest.skip(str(error))


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest) -> Iterator[str]:
    """Both databases, one after the other: the URL of an empty one; for SQLite the default of the data folder."""
    if request.param == "sqlite":
        yield ""
        return
    running: Server = request.getfixturevalue("postgres")
    url = running.url()
    yield url
    running.forget(url)
