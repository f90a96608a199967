"""The one error a mapping raises when a kernel does not fit a machine."""

from __future__ import annotations


class MappingError(ValueError):
    """A Program needs more of a resource than the machine has, or cannot be laid out on it.

    `resource` names what ran out, `needed` and `available` count it (0 where a count says nothing).
    Where several resources ran out at once the message has one line for each and the fields tell of
    the first.
    """

    def __init__(
        self, message: str, *, resource: str = "", needed: int = 0, available: int = 0
    ) -> None:
        super().__init__(message)
        self.resource = resource
        self.needed = needed
        self.available = available


def shortage(where: str, resource: str, needed: int, available: int, hint: str) -> str:
    """One line of a refusal: what ran out, by how much, and what would fit."""
    return (
        f"{where}: {resource} must be at most {available}, got {needed}"
        f" (over by {needed - available}); {hint}"
    )


def refuse(faults: list[tuple[str, str, int, int]]) -> None:
    """Raise one MappingError for all of `faults`, each (message, resource, needed, available).

    Does nothing where there are none.
    """
    if not faults:
        return
    _, resource, needed, available = faults[0]
    raise MappingError(
        "\n".join(fault[0] for fault in faults),
        resource=resource,
        needed=needed,
        available=available,
    )
