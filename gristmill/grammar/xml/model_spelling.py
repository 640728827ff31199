"""The XML spelling of a pydantic-xml class: its own mapping, read and written by the library."""

import json
from typing import Any

from pydantic import ValidationError
from pydantic_xml import BaseXmlModel
from pydantic_xml.element.utils import XSI_NS
from pydantic_xml.errors import BaseError

from gristmill.grammar.rules import Known, literal
from gristmill.grammar.tree import Tree
from gristmill.grammar.xml.grammar import GrammarBuilder
from gristmill.grammar.xml.models import Names, plan_model
from gristmill.grammar.xml.partial import partial_value
from gristmill.grammar.xml.reading import parse
from gristmill.grammar.xml.text import ATTRIBUTE, CONTENT


class ModelSpelling:
    """Spells the values of a pydantic-xml class as the library does: attributes, elements, wrappers and namespaces are
    those of the class, and what is None is left out.

    `tree` is that of the class's JSON Schema, with absent fields left out. `relaxed` lists, as `$.path: what`, what the
    grammar leaves to validation.

    Raises:
        SchemaError: the class has a part that can't be said; the message has its path.
    """

    def __init__(self, model: type[BaseXmlModel], tree: Tree) -> None:
        self._model = model
        self._names = Names()
        self._layout = plan_model(model, tree, self._names)
        serializer = model.__xml_serializer__
        assert serializer is not None  # noqa: S101 - the planner has looked
        self._root_name = self._names.of(serializer.element_name, "$")
        self._lead = "".join(f' {name}="{ATTRIBUTE.escape(uri)}"' for name, uri in self._names.lead.items())

    @property
    def relaxed(self) -> tuple[str, ...]:
        """What the grammar leaves to validation, as `$.path: what`."""
        return self._layout.relaxed

    def spell(self, value: Any) -> str:
        """A JSON value of the class as a document without insignificant white space.

        Raises:
            ValueError: the class refuses it, XML can't hold a character of it, or the library would not read it back.
        """
        instance = self._model.model_validate_json(json.dumps(value))
        document = self._written(instance.to_xml_tree(exclude_none=True), self._lead)
        if self._instance(document) != instance:
            raise ValueError(f"pydantic-xml writes {document} and reads something else; change the field's default")
        return document

    def grammar(self, source_text: str, known: Known = None) -> str:
        """The grammar for a record's text, as `LLMatcher` takes it; `known` parts are forced.

        Raises:
            ValueError: what is known has no place in the class.
        """
        builder = GrammarBuilder(self._layout, source_text)
        lead = literal(self._lead) if self._lead else ""
        return builder.rules.grammar(builder.element(self._root_name, self._layout.root, known, lead))

    def read(self, xml: str) -> Any:
        """The JSON value of a document that the class accepts.

        Raises:
            ValueError: it is no well-formed XML, has a document type, or (a `pydantic.ValidationError`) the class
                refuses it.
        """
        return self._instance(xml).model_dump(mode="json", by_alias=True, exclude_unset=True)

    def partial(self, xml: str) -> Any:
        """The JSON value of what is there of a document that was cut, or None where there is nothing yet."""
        return partial_value(self._layout, self._root_name, xml)

    def _instance(self, xml: str) -> BaseXmlModel:
        parse(xml)
        try:
            return self._model.from_xml(xml, empty_as_string=True)
        except ValidationError:
            raise
        except BaseError as error:
            raise ValueError(str(error)) from error

    def _written(self, element: Any, lead: str = "") -> str:
        """An element of the library's tree (of lxml's or of the standard library's kind)."""
        name = self._names.of(element.tag, "$")
        attributes = "".join(
            f' {self._attribute(key)}="{ATTRIBUTE.escape(value)}"' for key, value in element.attrib.items()
        )
        inner = CONTENT.escape(element.text or "") + "".join(map(self._written, element))
        return f"<{name}{lead}{attributes}>{inner}</{name}>"

    def _attribute(self, name: str) -> str:
        nil = name == f"{{{XSI_NS}}}nil"
        return "xsi:nil" if nil else self._names.of(name, "$", attribute=True)
