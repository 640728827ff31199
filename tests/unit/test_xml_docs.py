"""What docs/xml.md shows is so."""

import re
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from gristmill.grammar.tree import tree_of
from gristmill.grammar.xml.names import Xml, xml_json_schema
from gristmill.grammar.xml.spelling import XmlSpelling

PAGE = (Path(__file__).parents[2] / "docs" / "xml.md").read_text(encoding="utf-8")


def test_the_example_of_the_page() -> None:
    """The class and the value shown give the document shown, and back."""
    (code,), (shown,) = (re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL) for language in ("python", "xml"))
    known = (BaseModel, Field, Decimal, Annotated, Literal, Xml)
    scope: dict[str, Any] = {getattr(each, "__name__", None) or str(each).rsplit(".")[-1]: each for each in known}
    exec(compile(code, "docs/xml.md", "exec"), scope)
    spelling = XmlSpelling(tree_of(xml_json_schema(scope["Order"])), "order")
    value = scope["order"].model_dump(mode="json", exclude_unset=True)
    document = spelling.spell(value)
    assert document == "".join(line.strip() for line in shown.splitlines())
    assert scope["Order"].model_validate(spelling.read(shown)) == scope["order"]
