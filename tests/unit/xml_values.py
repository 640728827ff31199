"""Random JSON values that a tree allows, for property tests."""

import json
import re
from random import Random
from typing import Any

from hypothesis import strategies as st
from llguidance import LLMatcher, LLTokenizer

from gristmill.grammar.tree import (
    Anything,
    Boolean,
    Choice,
    Node,
    Null,
    Number,
    Object,
    Reference,
    Sequence,
    Text,
    Tree,
    Union,
)
from gristmill.verbatim import words_of

TOKENIZER = LLTokenizer("byte")

CHARACTERS = "<&>\"']/;= \t\n\r-x7Aé\x7f\x85\u2028漢字カ🙂👍\U0001f3fd\ufffd"
STRINGS = st.one_of(
    # Like what a document is made of, like other types' values, and joined emoji.
    st.sampled_from(["", "]]>", "<&>\"']]>", "<!-- x -->", "&amp;", "&#13;\r\n", "5", "true", "null"]),
    st.sampled_from([" \n ", "🧑‍🚀 漢字"]),
    st.text(CHARACTERS, max_size=8),
    st.text(st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="\ufffe\uffff"), max_size=5),
)

FORMATTED = {
    "date": st.dates().map(lambda d: d.isoformat()),
    "date-time": st.datetimes().map(lambda d: d.isoformat()) | st.datetimes().map(lambda d: d.isoformat() + "+05:30"),
    "time": st.times().map(lambda t: t.isoformat()),
    "duration": st.sampled_from(["P3DT7H3.5S", "PT0S", "-PT23H59M55S", "P1Y35DT0.000001S", "PT5H"]),
    "uuid": st.uuids().map(str),
    "decimal": st.decimals(0, 1000, places=2).map(str),
    "email": st.sampled_from(["a.b&c@example.org", "x@y"]),
    "uri": st.sampled_from(["https://example.org/?a=1&b='2'", "x:y"]),
}


def values(tree: Tree, node: Node, text: str, depth: int = 2) -> st.SearchStrategy[Any]:
    """Values of a node; `text` is that of the record, `depth` how deep recursion goes at most."""

    def below(child: Node) -> st.SearchStrategy[Any]:
        return values(tree, child, text, depth)

    match node:
        case Null():
            return st.none()
        case Boolean():
            return st.booleans()
        case Choice(_, options):
            return st.sampled_from(options)
        case Number(source, integer):
            return _numbers(source, integer)
        case Text():
            return _strings(node, text)
        case Union(_, options):
            ends = [option for option in options if not isinstance(option, Reference)]
            return st.one_of([below(option) for option in (ends if depth <= 0 and ends else options)])
        case Reference(_, name):
            return values(tree, tree.definitions[name], text, depth - 1)
        case Sequence(_, _, (), 0) if depth <= 0:
            return st.just([])
        case Sequence():
            high = min(node.max_items if node.max_items is not None else 2, 2 + node.min_items)
            items = st.lists(below(node.items), min_size=node.min_items, max_size=high) if node.items else st.just([])
            if not node.prefix:
                return items
            return st.tuples(*map(below, node.prefix)).map(list)
        case Object():
            fields = {field.name: below(field.node) for field in node.fields if field.required}
            optional = {field.name: below(field.node) for field in node.fields if not field.required and depth > 0}
            named = st.fixed_dictionaries(fields, optional=optional)
            if node.extra is None:
                return named
            keys = STRINGS.filter(lambda key: key not in {*fields, *optional})
            others = st.dictionaries(keys, below(node.extra), max_size=2)
            return st.builds(lambda one, more: {**one, **more}, named, others)
        case Anything(source) if source.get("type") == "object":
            entries = below(tree.node(source["additionalProperties"], "$"))
            return st.dictionaries(STRINGS, entries, max_size=source.get("maxProperties", 2))
        case Anything():
            numbers = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
            return st.recursive(
                st.none() | st.booleans() | numbers | STRINGS,
                lambda inner: st.lists(inner, max_size=2) | st.dictionaries(STRINGS, inner, max_size=2),
                max_leaves=4,
            )


def accepts(matcher: LLMatcher, document: str) -> bool:
    """Whether a grammar, from its start, takes a document to its end."""
    fresh = matcher.deep_copy()
    tokens = TOKENIZER.tokenize_bytes(document.encode())
    return bool(fresh.try_consume_tokens(tokens) == len(tokens) and fresh.is_accepting())


def walk(matcher: LLMatcher, chance: Random, longest: int = 2000) -> str | None:
    """A random document that a grammar lets through, byte by byte; None if it would be longer, in bytes."""
    written = bytearray()
    while not matcher.is_accepting() and len(written) < longest:
        mask = matcher.compute_bitmask()
        allowed = [byte for byte in range(256) if mask[byte // 8] >> byte % 8 & 1]
        # Texts come to an end now and then, and so does everything in the end.
        ends = [byte for byte in b'<"' if byte in allowed and chance.random() < 0.4] or allowed
        byte = ord("/") if ord("/") in allowed and len(written) > 300 else chance.choice(ends)
        assert matcher.consume_token(byte)
        written.append(byte)
    return written.decode() if matcher.is_accepting() else None


def matcher_of(grammar: str) -> LLMatcher:
    """A grammar, compiled."""
    matcher = LLMatcher(TOKENIZER, grammar)
    assert not matcher.is_error(), matcher.get_error()
    return matcher


def _numbers(source: Any, integer: bool) -> st.SearchStrategy[Any]:
    if source.get("x-decimal"):
        return FORMATTED["decimal"]
    low, high = source.get("minimum"), source.get("maximum")
    if integer:
        return st.integers(low, high)
    above, below = source.get("exclusiveMinimum"), source.get("exclusiveMaximum")
    return st.floats(
        low if above is None else above,
        high if below is None else below,
        exclude_min=above is not None,
        exclude_max=below is not None,
        allow_nan=False,
        allow_infinity=False,
    )


def _strings(node: Text, text: str) -> st.SearchStrategy[str]:
    if node.verbatim is not None:
        words = words_of(text, node.verbatim)
        starts = [i for i, space in enumerate(words.spaces) if not space]
        runs = ["".join(words.units[a : b + 1]) for a in starts for b in starts if a <= b < a + 6]
        return st.sampled_from([run for run in runs if _spellable(run) and len(run) <= (node.max_length or len(text))])
    if node.format in FORMATTED:
        return FORMATTED[node.format]
    if node.pattern is not None:
        expression = re.compile(re.sub(r"\$$", r"\\Z", node.pattern), re.ASCII)
        return st.from_regex(expression).filter(lambda s: _spellable(s) and len(s) <= (node.max_length or len(s)))
    high = node.max_length if node.max_length is not None else 20
    return STRINGS.map(lambda s: s[:high]).map(lambda s: s.ljust(node.min_length, "&"))


def _spellable(value: str) -> bool:
    return not re.search("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", value)


def same(one: Any, other: Any) -> bool:
    """Whether two JSON values are the same, types included."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)
