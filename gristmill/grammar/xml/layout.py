"""The layout: what a tree looks like in XML. Writing, reading, the grammar and the XSD all follow it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum

from gristmill.grammar.tree import Boolean, Choice, Number, Text

LeafNode = Text | Number | Boolean | Choice


@dataclass(frozen=True, slots=True)
class Leaf:
    """Text alone. Of several kinds, which can be told apart, strings come last."""

    kinds: tuple[LeafNode, ...]


@dataclass(frozen=True, slots=True)
class Record:
    """Parts in order, then an element `entry` with an attribute `key` for each other key (`extra` None: for none).

    `least` and `most` count these entries.
    """

    parts: tuple["Part", ...] = ()
    extra: "Slot | None" = None
    least: int = 0
    most: int | None = None

    @property
    def keys(self) -> frozenset[str]:
        """The keys of all fields, those in groups included."""
        inner = (
            part.slot.content.keys for part in self.parts if isinstance(part.slot.content, Record) and part.grouped
        )
        return frozenset(part.key for part in self.parts if not part.grouped).union(*inner)


@dataclass(frozen=True, slots=True)
class Items:
    """The elements `item1`, `item2` ... of `prefix`, of which some may lack at the end, then elements `name`."""

    name: str
    item: "Slot | None"
    prefix: tuple["Slot", ...] = ()
    least: int = 0
    most: int | None = None


@dataclass(frozen=True, slots=True)
class Variant:
    """One element, whose name says which of the options it is."""

    options: tuple[tuple[str, "Slot"], ...]


@dataclass(frozen=True, slots=True)
class Named:
    """What stands under this name in the layout's definitions."""

    name: str


Content = Leaf | Record | Items | Variant | Named


@dataclass(frozen=True, slots=True)
class Slot:
    """What an element can hold; null if `nillable`, and nothing but null without content."""

    content: Content | None
    nillable: bool = False


class Place(Enum):
    """Where a field of a record stands. A group is an element for some of the record's fields, and no field itself."""

    ATTRIBUTE = "attribute"
    ELEMENT = "element"
    REPEATED = "repeated"
    TEXT = "text"
    GROUP = "group"


@dataclass(frozen=True, slots=True)
class Part:
    """A field of a record. For a repeated one `slot` is that of one item; `least` and `most` count the items."""

    key: str
    name: str
    place: Place
    slot: Slot
    required: bool
    least: int = 0
    most: int | None = None

    @property
    def grouped(self) -> bool:
        """Whether this is no field, but an element around some."""
        return self.place is Place.GROUP


@dataclass(frozen=True)
class Layout:
    """The root element's slot, and the slots that others name; `relaxed` is what the grammar leaves to validation."""

    root: Slot
    definitions: Mapping[str, Slot]
    relaxed: tuple[str, ...] = ()

    def opened(self, slot: Slot) -> Slot:
        """The slot with its name replaced by what is meant."""
        while isinstance(slot.content, Named):
            meant = self.definitions[slot.content.name]
            slot = Slot(meant.content, slot.nillable or meant.nillable)
        return slot


def slots_of(layout: Layout) -> Iterator[Slot]:
    """Every slot of a layout, each definition's once."""
    below = [layout.root, *layout.definitions.values()]
    while below:
        slot = below.pop()
        yield slot
        match slot.content:
            case Record(parts, extra):
                below += [part.slot for part in parts] + ([extra] if extra is not None else [])
            case Items(_, item, prefix):
                below += [*prefix] + ([item] if item is not None else [])
            case Variant(options):
                below += [option for _, option in options]
