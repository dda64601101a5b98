"""The tree of modules on the page of a report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from jit_amp._explain.records import Row


def short_number(value: float) -> str:
    """A number of the page; empty for 0."""
    return "" if not value else f"{value:.1e}"


@dataclass
class _Module:
    rows: list[Row] = field(default_factory=list)  # of its own code
    children: dict[str, _Module] = field(default_factory=dict)

    def all_rows(self) -> Iterator[Row]:
        yield from self.rows
        for child in self.children.values():
            yield from child.all_rows()

    def shape(self) -> tuple[Any, ...]:
        """What two modules have to have in common to be shown as one."""
        own = Counter((r.operator, str(r.place), r.computed_in, r.is_backward) for r in self.rows)
        return tuple(sorted(own.items())), tuple((n, c.shape()) for n, c in self.children.items())


def tree(rows: Sequence[Row], total: float) -> list[dict[str, Any]]:
    """The modules, as the page shows them: equal ones with numbers for names are one."""
    root = _Module()
    for row in rows:
        at = root
        for name in filter(None, row.module.split(".")):
            at = at.children.setdefault(name, _Module())
        at.rows.append(row)
    return _shown_children(root, "", total)


def _shown_children(module: _Module, path: str, total: float) -> list[dict[str, Any]]:
    groups: list[tuple[list[str], Any, _Module]] = []
    for name, child in module.children.items():
        shape = child.shape() if name.isdigit() else None
        if groups and shape is not None and groups[-1][1] == shape:
            groups[-1][0].append(name)
        else:
            groups.append(([name], shape, child))
    found = []
    for names, _, child in groups:
        rows = [row for name in names for row in module.children[name].all_rows()]
        paths = [f"{path}{name}" for name in names]
        label = names[0] if len(names) == 1 else f"{names[0]}\u2013{names[-1]}"
        found.append(
            {
                "label": label,
                "count": len(names),
                "paths": paths,
                "ms": 1e3 * sum(row.seconds for row in rows),
                "time": sum(row.seconds for row in rows) / total if total else 0.0,
                "casts": sum(row.cast_count for row in rows),
                "error": short_number(
                    max((r.numerics.introduced for r in rows if r.numerics), default=0.0)
                ),
                "children": _shown_children(child, f"{paths[0]}.", total)
                if len(names) == 1
                else _together(
                    [_shown_children(module.children[n], f"{path}{n}.", total) for n in names]
                ),
            }
        )
    return found


def _together(trees: list[list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Returns the trees with equal ones as one."""
    made = []
    for nodes in zip(*trees, strict=True):
        first = nodes[0]
        made.append(
            {
                "label": first["label"],
                "count": first["count"],
                "paths": [path for node in nodes for path in node["paths"]],
                "ms": sum(node["ms"] for node in nodes),
                "time": sum(node["time"] for node in nodes),
                "casts": sum(node["casts"] for node in nodes),
                "error": max((node["error"] for node in nodes), key=lambda e: float(e or 0)),
                "children": _together([node["children"] for node in nodes]),
            }
        )
    return made
