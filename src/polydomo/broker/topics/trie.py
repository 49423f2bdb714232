"""A radix trie over byte strings. It finds the keys that are prefixes of a text, and the keys that begin with it, in order.

The cost depends on the length of the text and on the number of results, not on the number of keys.
"""

from collections.abc import Iterator
from typing import Generic, TypeVar

V = TypeVar("V")


class Node(Generic[V]):
    __slots__ = ("children", "label", "value")

    def __init__(self, label: bytes, value: V | None) -> None:
        self.label = label  # the bytes between the parent's key and this key
        self.value = value
        self.children: dict[int, Node[V]] | None = None  # children by the first byte of their labels


class Trie(Generic[V]):
    """Maps keys to values other than None. No two children of a node share a first byte, and no node without a value has only one child."""

    def __init__(self) -> None:
        self._root: Node[V] = Node(b"", None)

    def get(self, key: bytes) -> V | None:
        node, position = self._root, 0
        while position < len(key):
            child = node.children.get(key[position]) if node.children is not None else None
            if child is None or not key.startswith(child.label, position):
                return None
            node = child
            position += len(child.label)
        return node.value

    def set(self, key: bytes, value: V) -> None:
        node, position = self._root, 0
        while position < len(key):
            children = node.children
            if children is None:
                children = node.children = {}
            child = children.get(key[position])
            if child is None:
                children[key[position]] = Node(key[position:], value)
                return
            if key.startswith(child.label, position):
                node = child
            else:
                shared = _shared(child.label, key, position)
                between: Node[V] = Node(child.label[:shared], None)
                between.children = {child.label[shared]: child}
                child.label = child.label[shared:]
                children[key[position]] = between
                node = between
            position += len(node.label)
        node.value = value

    def remove(self, key: bytes) -> None:
        """Removes a key if it exists."""
        path = [self._root]
        position = 0
        while position < len(key):
            node = path[-1]
            child = node.children.get(key[position]) if node.children is not None else None
            if child is None or not key.startswith(child.label, position):
                return
            path.append(child)
            position += len(child.label)
        node = path[-1]
        node.value = None
        if len(path) == 1:
            return
        parent = path[-2]
        if not node.children:
            assert parent.children is not None
            del parent.children[node.label[0]]
            if not parent.children:
                parent.children = None
            node = parent
        self._merge(node)

    def _merge(self, node: Node[V]) -> None:
        """Merges a node that has no value and one child with that child."""
        if node is self._root or node.value is not None or node.children is None or len(node.children) != 1:
            return
        (child,) = node.children.values()
        node.label += child.label
        node.value = child.value
        node.children = child.children

    def along(self, text: bytes, least: int = 0) -> list[V]:
        """The values of all keys that are prefixes of ``text`` and have ``least`` bytes or more, the shortest first."""
        found: list[V] = []
        node = self._root
        position = 0
        size = len(text)
        while True:
            if node.value is not None and position >= least:
                found.append(node.value)
            if position == size or node.children is None:
                return found
            child = node.children.get(text[position])
            if child is None or not text.startswith(child.label, position):
                return found
            node = child
            position += len(child.label)

    def under(self, prefix: bytes, after: bytes | None = None) -> Iterator[V]:
        """The values of all keys that begin with ``prefix``, in key order; with ``after``, only of keys after that one."""
        node, path = self._root, b""
        while len(path) < len(prefix):
            child = node.children.get(prefix[len(path)]) if node.children is not None else None
            if child is None:
                return
            path += child.label
            node = child
            if not path.startswith(prefix) and not prefix.startswith(path):
                return
        stack = [node] if after is None else _past(node, path, after)
        while stack:
            node = stack.pop()
            if node.value is not None:
                yield node.value
            if node.children is not None:
                _push(stack, node.children, -1)

    def check_invariants(self) -> None:
        """For tests: checks the structure that the class docstring describes."""
        stack = [self._root]
        while stack:
            node = stack.pop()
            children = node.children or {}
            assert children or node.children is None
            assert node is self._root or node.value is not None or len(children) > 1, (
                f"an unnecessary node {node.label!r}"
            )
            for first, child in children.items():
                assert child.label and child.label[0] == first
                stack.append(child)


def _past(node: Node[V], path: bytes, after: bytes) -> list[Node[V]]:
    """The roots of all subtrees after ``after`` under ``node``, whose key is ``path``; in reverse order."""
    stack: list[Node[V]] = []
    while after.startswith(path):  # the node's key and the children before the path come before ``after``
        if node.children is None:
            return stack
        if len(after) == len(path):
            _push(stack, node.children, -1)
            return stack
        step = after[len(path)]
        _push(stack, node.children, step)
        child = node.children.get(step)
        if child is None:
            return stack
        node = child
        path += child.label
    if path > after:
        stack.append(node)
    return stack


def _push(stack: list[Node[V]], children: dict[int, Node[V]], past: int) -> None:
    for first in sorted(children, reverse=True):
        if first > past:
            stack.append(children[first])


def _shared(label: bytes, key: bytes, position: int) -> int:
    """The length of the common prefix of ``label`` and ``key[position:]``."""
    most = min(len(label), len(key) - position)
    for i in range(most):
        if label[i] != key[position + i]:
            return i
    return most
