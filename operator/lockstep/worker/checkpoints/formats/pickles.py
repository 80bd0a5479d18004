"""Numbers in the dictionaries of a pickle, by their keys. It is read as a list of opcodes and never unpickled: nothing
that it names is imported or called, and no number in it says how much memory is taken.
"""

from __future__ import annotations

import pickletools
from typing import Any, Dict, List, Optional, Sequence

MOST_OPCODES = 3_000_000  # a few seconds
_DEEPEST, _WIDEST = 3, 10_000  # dictionaries in one another, and beside each other
_MARK, _ORDERED = object(), object()
_NUMBERS = frozenset({"BININT", "BININT1", "BININT2", "INT", "LONG", "LONG1", "LONG4"})
_TEXTS = frozenset(
    {"UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8", "STRING", "BINSTRING", "SHORT_BINSTRING"}
)
_PUTS, _GETS = frozenset({"PUT", "BINPUT", "LONG_BINPUT"}), frozenset({"GET", "BINGET", "LONG_BINGET"})


def first_number(pickled: bytes, keys: Sequence[str]) -> Optional[int]:
    """The number of the first of these keys that has one: in the outermost dictionary before those within, and never in
    an optimizer's. None: there is none, or it is no pickle that is read here."""
    try:
        level = [_outermost(pickled)]
    except (ValueError, IndexError, KeyError, TypeError, OverflowError, RecursionError):  # it is damaged
        return None
    for _ in range(_DEEPEST):
        found = [each for each in level if isinstance(each, dict)][:_WIDEST]
        for key in keys:
            number = next((each[key] for each in found if type(each.get(key)) is int and each[key] >= 0), None)
            if number is not None:
                return int(number)
        level = [value for each in found for key, value in each.items() if "optim" not in key.lower()]
    return None


def _outermost(pickled: bytes) -> Any:
    """The dictionary that it is, with texts as keys; of the rest numbers and dictionaries alone are told apart."""
    stack: List[Any] = []
    memo: Dict[int, Any] = {}
    for number, (opcode, argument, _) in enumerate(pickletools.genops(pickled)):
        name = opcode.name
        if name in _NUMBERS or name in _TEXTS:
            stack.append(argument)
        elif name in _PUTS:
            memo[int(argument or 0)] = stack[-1]
        elif name == "MEMOIZE":
            memo[len(memo)] = stack[-1]
        elif name in _GETS:
            stack.append(memo[int(argument or 0)])
        elif name == "MARK":
            stack.append(_MARK)
        elif name == "EMPTY_DICT":
            stack.append({})
        elif name in ("SETITEM", "SETITEMS", "DICT"):
            items = [stack.pop(-2), stack.pop()] if name == "SETITEM" else _to_mark(stack)
            if name == "DICT":
                stack.append({})
            _put(stack[-1], items)
        elif name in ("GLOBAL", "STACK_GLOBAL"):
            words = argument if name == "GLOBAL" else " ".join(map(str, (stack.pop(-2), stack.pop())))
            stack.append(_ORDERED if words == "collections OrderedDict" else None)
        elif name == "REDUCE":
            stack.pop()
            stack.append({} if stack.pop() is _ORDERED else None)
        elif name == "BUILD":
            stack.pop()
        elif name == "STOP":
            return stack.pop()
        else:
            _replace(stack, opcode)
        if number >= MOST_OPCODES:
            break
    return None


def _put(owner: Any, items: Sequence[Any]) -> None:
    if isinstance(owner, dict):
        owner.update({items[at]: items[at + 1] for at in range(0, len(items) - 1, 2) if isinstance(items[at], str)})


def _to_mark(stack: List[Any]) -> List[Any]:
    """What lies above the last mark, which goes with it. Raises IndexError."""
    at = len(stack) - 1
    while stack[at] is not _MARK:  # beyond the first there is nothing
        at = at - 1 if at else len(stack)
    above = stack[at + 1 :]
    del stack[at:]
    return above


def _replace(stack: List[Any], opcode: pickletools.OpcodeInfo) -> None:
    """What the opcode takes by what it makes, of which nothing is known."""
    below = len(opcode.stack_before)
    if pickletools.markobject in opcode.stack_before:
        _to_mark(stack)
        below = opcode.stack_before.index(pickletools.markobject)
    if below:
        del stack[-below:]
    stack.extend(None for _ in opcode.stack_after)
