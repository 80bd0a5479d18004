"""Resource amounts as integers: ``cpu`` in millicores, everything else in its base unit (bytes, devices). Counts of
steps, as people read them."""

import math
from collections.abc import Iterable, Mapping

from lockstep.api.base.quantities import parse_quantity

CPU = "cpu"
MEMORY = "memory"

_BINARY = ("Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_BYTE_RESOURCES = frozenset({MEMORY, "ephemeral-storage", "storage"})


def amount(resource: str, quantity: str | int) -> int:
    """The integer amount of a quantity such as ``500m`` or ``1800Gi``, rounded up.

    Raises ValueError, with the right form, on what is no quantity.
    """
    value = parse_quantity(quantity)
    return math.ceil(value * 1000 if resource == CPU else value)


def amounts(quantities: Mapping[str, str | int]) -> dict[str, int]:
    """Every quantity of a requests, limits or allocatable block."""
    return {resource: amount(resource, quantity) for resource, quantity in quantities.items()}


def are_quantities(texts: Iterable[str]) -> bool:
    """All of them can be read; nothing is one as well."""
    try:
        return all(parse_quantity(text) >= 0 for text in texts if text)
    except ValueError:
        return False


def quantity(resource: str, value: int) -> str:
    """The exact quantity of an amount, in its largest whole unit: 191800 -> "191800m", 2**40 -> "1Ti"."""
    if resource == CPU:
        return f"{value}m" if value % 1000 else str(value // 1000)
    if not is_bytes(resource) or value <= 0:
        return str(value)
    unit = ""
    for larger in _BINARY:
        if value % 1024:
            break
        value, unit = value // 1024, larger
    return f"{value}{unit}"


def in_words(resource: str, value: int) -> str:
    """An amount for people, possibly rounded: ``191.8``, ``1.5Ti``, ``8``."""
    if resource == CPU:
        return f"{value / 1000:.10g}"
    if not is_bytes(resource):
        return str(value)
    shown, unit = float(value), ""
    for larger in _BINARY:
        if abs(shown) < 1024:
            break
        shown, unit = shown / 1024, larger
    return f"{shown:.4g}{unit}"


def is_bytes(resource: str) -> bool:
    """The resource is measured in bytes."""
    return resource in _BYTE_RESOURCES or resource.startswith("hugepages-")


def steps_in_short(step: int, total: int | None) -> str:
    """``120k/250k``: as the Step column shows them."""
    return short_count(step) + (f"/{short_count(total)}" if total else "")


def short_count(number: int) -> str:
    """120000 -> 120k, 1250 -> 1250, 3400000 -> 3.4M: exact below ten thousand, then three digits."""
    rounded = float(f"{number:.3g}")
    for size, unit in (10**9, "G"), (10**6, "M"), (10**3, "k"):
        if rounded >= size and (number >= 10_000 or number % size == 0):
            return f"{rounded / size:.15g}{unit}"
    return str(number)
