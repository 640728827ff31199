"""The XML spelling of a tree: values to documents and back, and the grammar that lets a model write nothing else."""

from typing import Any

from gristmill.grammar.rules import Known, literal
from gristmill.grammar.tree import Tree
from gristmill.grammar.xml.grammar import GrammarBuilder
from gristmill.grammar.xml.layout import Layout, slots_of
from gristmill.grammar.xml.partial import partial_value
from gristmill.grammar.xml.planning import plan
from gristmill.grammar.xml.reading import Reader
from gristmill.grammar.xml.text import NAMESPACE, check_name
from gristmill.grammar.xml.writing import Writer


class XmlSpelling:
    """Spells the values of a tree as XML documents whose root element is called `root_name`.

    `relaxed` lists, as `$.path: what`, what the grammar leaves to validation.

    Raises:
        SchemaError: a part of the tree can't be said in XML; the message has its path.
    """

    def __init__(self, tree: Tree, root_name: str) -> None:
        self.root_name = check_name(root_name, "$")
        self.layout: Layout = plan(tree)
        self._lead = NAMESPACE if any(slot.nillable for slot in slots_of(self.layout)) else ""
        self._writer = Writer(self.layout)
        self._reader = Reader(self.layout)

    @property
    def relaxed(self) -> tuple[str, ...]:
        """What the grammar leaves to validation, as `$.path: what`."""
        return self.layout.relaxed

    def spell(self, value: Any) -> str:
        """A JSON value, as `model_dump(mode="json")` gives it, as a document without insignificant white space.

        Bounds, lengths, patterns and counts are left to validation; a required field that is not there is left out.

        Raises:
            ValueError: the tree has no place for a part of the value, or XML can't hold a character of it.
        """
        return self._writer.element(self.root_name, self.layout.root, value, self._lead)

    def grammar(self, source_text: str, known: Known = None) -> str:
        """The grammar for a record's text, as `LLMatcher` takes it; `known` parts are forced.

        Raises:
            ValueError: what is known has no place in the tree.
        """
        builder = GrammarBuilder(self.layout, source_text)
        lead = literal(self._lead) if self._lead else ""
        return builder.rules.grammar(builder.element(self.root_name, self.layout.root, known, lead))

    def read(self, xml: str) -> Any:
        """The JSON value of a document, for the class to validate.

        Raises:
            ValueError: it is no well-formed XML, has a document type, or an element, attribute or text that the tree
                has no place for.
        """
        return self._reader.document(self.root_name, xml)

    def partial(self, xml: str) -> Any:
        """The JSON value of what is there of a document that was cut, or None where there is nothing yet."""
        return partial_value(self.layout, self.root_name, xml)
