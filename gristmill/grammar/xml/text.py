"""Characters of XML: which can stand in a document, how they are escaped, and as regular expressions."""

import re
from dataclasses import dataclass
from functools import cached_property

from gristmill.errors import SchemaError

NIL = ' xsi:nil="true"/>'
"""What follows an element's name where its value is null."""
NAMESPACE = ' xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"'
"""The attribute that the root element has where a value can be null."""

ILLEGAL = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""A character that no XML 1.0 document can hold, not even as a reference (https://www.w3.org/TR/xml/#charsets)."""

_ILLEGAL_CLASS = r"\x00-\x08\x0b\x0c\x0e-\x1f\x{fffe}\x{ffff}"
_START = (
    "A-Z_a-z\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u02ff\u0370-\u037d\u037f-\u1fff\u200c\u200d\u2070-\u218f\u2c00-\u2fef"
    "\u3001-\ud7ff\uf900-\ufdcf\ufdf0-\ufffd\U00010000-\U000effff"
)
_NAME = re.compile(f"[{_START}][{_START}0-9.\u00b7\u0300-\u036f\u203f\u2040-]*")


@dataclass(frozen=True)
class Place:
    """Text of an element, or an attribute's value: `escapes` says how characters are written that can't stand there.

    DEL and the C1 control characters are written as references, so that no control character but tab and line feed is
    ever written as it is.
    """

    escapes: dict[str, str]

    @property
    def kept_out(self) -> str:
        """The characters that never stand here as they are, as the inside of a character class."""
        return _ILLEGAL_CLASS + "".join(f"\\x{{{ord(character):x}}}" for character in self.escapes)

    @cached_property
    def unit(self) -> str:
        """A regular expression for one character of a value as it is written here."""
        return f"(?:[^{self.kept_out}]|{'|'.join(self.escapes.values())})"

    @cached_property
    def trimmed(self) -> str:
        """A regular expression for what is not empty and neither begins nor ends with white space; it holds no
        character that XML can't hold.

        Every `&` begins a reference, so the parts that it is made of fit any text in one way only.
        """
        words = "|".join(written for character, written in self.escapes.items() if not character.isspace())
        word = rf"(?:[^\s&{_ILLEGAL_CLASS}]|{words})"
        return rf"{word}(?:(?:[^&{_ILLEGAL_CLASS}]|&[^;&]*;)*{word})?"

    def escape(self, text: str) -> str:
        """A text as it is written here.

        Raises:
            ValueError: XML can't hold one of its characters.
        """
        if found := ILLEGAL.search(text):
            raise ValueError(
                f"the character U+{ord(found[0]):04X} at offset {found.start()} can't stand in XML; remove it"
            )
        return self.escape_known(text)

    def escape_known(self, text: str) -> str:
        """A text as it is written here, with characters that XML can't hold left as they are."""
        return text.translate(self._table)

    @cached_property
    def _table(self) -> dict[int, str]:
        return {ord(character): written for character, written in self.escapes.items()}


_CONTROLS = {chr(code): f"&#{code};" for code in range(0x7F, 0xA0)}

CONTENT = Place({"&": "&amp;", "<": "&lt;", ">": "&gt;", "\r": "&#13;", **_CONTROLS})
ATTRIBUTE = Place({**CONTENT.escapes, '"': "&quot;", "\t": "&#9;", "\n": "&#10;"})


def speakable(text: str) -> str:
    """A text with U+0000 for lone surrogates, which neither XML nor a grammar can hold."""
    return re.sub("[\ud800-\udfff]", "\x00", text)


def check_name(name: str, path: str) -> str:
    """The name, which may be that of an element or attribute.

    Raises:
        SchemaError: it may not.
    """
    if not _NAME.fullmatch(name) or name.lower().startswith("xml"):
        raise SchemaError(
            f"{path}: {name!r} can't be the name of an XML element or attribute; give one by Xml(name=...)"
        )
    return name
