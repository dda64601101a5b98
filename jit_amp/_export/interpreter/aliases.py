"""Tensors that share memory in eager, and not in an exported program.

A branch or a loop that the program holds as a whole gives copies where a result is what came in, or
a part of it. It is not known what eager has where both are used and one is written to: that is
refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NoReturn

from torch import Tensor
from torch.utils import _pytree as pytree

from jit_amp._export.interpreter.steps import Step
from jit_amp._export.interpreter.values import storage_of


class Parted:
    """``lasting`` gives the tensors that are there after the program too: its state, its arguments.
    ``refuse`` refuses a step.

    Attributes:
        wrote: what has been written to, by its memory.
    """

    def __init__(
        self,
        lasting: Callable[[], Iterable[Tensor]],
        refuse: Callable[[Step, int, list[str]], NoReturn],
    ) -> None:
        self.wrote: set[int] = set()
        self._find_lasting, self._refuse = lasting, refuse
        self._lasting: set[int] | None = None
        self._others: dict[int, tuple[Tensor, set[int], Step]] = {}
        self._stale: dict[int, Step] = {}

    def __bool__(self) -> bool:
        return bool(self._others or self._stale)

    def part(self, step: Step, made: Sequence[Any], operands: Sequence[Any]) -> None:
        """``made``: results of a branch or loop, each with the operands that it may be."""
        for result, sources in made:
            for source in (operands[i] for i in sources):
                for x, y in ((result, source), (source, result)):
                    self._others.setdefault(storage_of(x), (x, set(), step))[1].add(storage_of(y))

    def overtake(self, step: Step, tensor: Tensor) -> None:
        """A loop has written to the tensor in eager, and here to a copy, which is its result."""
        storage = storage_of(tensor)
        self._stale[storage] = step
        self._refuse_lasting({storage}, step)

    def sources(self, result: Any, operands: Sequence[Any]) -> set[int]:
        """Which operands a result may be, or be a part of, in eager."""
        if not isinstance(result, Tensor):
            return set()
        reached = {storage_of(result)}
        ahead = list(reached)
        while ahead:
            _, others, _ = self._others.get(ahead.pop(), (None, set[int](), None))
            ahead += others - reached
            reached |= others
        tensors = [(i, x) for i, x in enumerate(operands) if isinstance(x, Tensor)]
        return {i for i, x in tensors if storage_of(x) in reached}

    def among(self, results: Sequence[Any]) -> list[set[int]]:
        """Of each result, which of those before it it may be, or share memory with, in eager."""
        return [self.sources(result, results[:i]) for i, result in enumerate(results)]

    def watch(self, used: Any, written: Any) -> None:
        """Refuses what uses a tensor that is not written to here, and may be in eager."""
        storages = {storage_of(x) for x in pytree.tree_leaves(used) if isinstance(x, Tensor)}
        for storage in storages & self._stale.keys():
            self._refuse_step(self._stale[storage])
        ahead = [storage_of(x) for x in pytree.tree_leaves(written) if isinstance(x, Tensor)]
        self.wrote.update(ahead)
        ahead = [storage for storage in ahead if storage in self._others]
        reached = set(ahead)
        while ahead:
            _, others, step = self._others[ahead.pop()]
            for other in others - reached:
                self._refuse_lasting({other}, step)
                self._stale[other] = step
                reached.add(other)
                ahead.append(other)

    def _refuse_lasting(self, storages: set[int], step: Step) -> None:
        if self._lasting is None:
            self._lasting = {storage_of(x) for x in self._find_lasting()}
        if storages & self._lasting:
            self._refuse_step(step)

    def _refuse_step(self, step: Step) -> NoReturn:
        if step.node.kind() == "prim::Loop":
            self._refuse(step, 502, [])
        said = "its result may be another tensor of the program, and one is written to later"
        self._refuse(step, 501, [said])
