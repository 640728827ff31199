"""Random instances of many classes: spelt as JSON, accepted by the grammar, read back, and equal."""

from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from pydantic import BaseModel, TypeAdapter

from gristmill.grammar.json_spelling import JsonSpelling
from gristmill.grammar.tree import tree_of
from gristmill.grammar.xml.names import xml_json_schema
from gristmill.printing import json_schema_of
from tests.unit.test_xml_round_trips import SCHEMAS, TEXT
from tests.unit.xml_values import accepts, matcher_of, values


@pytest.mark.parametrize("separators", [(", ", ": "), (",", ":")], ids=["spaced", "compact"])
@pytest.mark.parametrize("model", SCHEMAS, ids=lambda model: model.__name__)
def test_every_instance_makes_the_round_trip(model: type[BaseModel], separators: tuple[str, str]) -> None:
    """What is spelt is accepted by the grammar, and means the same instance again; in both spellings of separators."""
    spelling = JsonSpelling(tree_of(json_schema_of(model)), separators)
    # Where decimals are numbers and not any string.
    tree = tree_of(xml_json_schema(model))
    matcher = matcher_of(spelling.grammar(TEXT))
    adapter = TypeAdapter(model)

    @settings(
        max_examples=1000 if separators == (", ", ": ") else 100,
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate, Phase.shrink],
    )
    @given(values(tree, tree.root, TEXT))
    def trip(value: Any) -> None:
        instance = adapter.validate_python(value)
        text = spelling.spell(adapter.dump_python(instance, mode="json", by_alias=True, exclude_unset=True))
        assert accepts(matcher, text), text
        assert adapter.validate_json(text) == instance

    trip()
