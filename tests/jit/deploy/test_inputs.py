"""Examples whose tensors stand in lists, tuples and dictionaries: known, checked, never wrong."""

import copy
from collections.abc import Callable, Iterator
from typing import Any, Dict, List, NamedTuple, Optional, Tuple  # noqa: UP035

import pytest
import torch
from torch import Tensor, nn

import jit_amp

from ..support import assert_same

BF16 = torch.bfloat16


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(4, 4)


class ListOf(Model):
    def forward(self, xs: List[Tensor], n: int):  # noqa: UP006
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = xs[n]
            z = xs[0] + torch.cat(xs)[:2]
            for x in xs:
                z = z + self.a(x)
            return self.a(y), torch.prod(y, 1), torch.cat([y, self.a(y)]), z


class DictOf(Model):
    def forward(self, batch: Dict[str, Tensor], n: int):  # noqa: UP006
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = batch["image"]
            z = y
            if "more" in batch:
                z = batch["more"]
            return self.a(y), torch.prod(y, 1), torch.cat([z, self.a(y)]), batch["mask"] * 2


class Batch(Model):
    def forward(self, batch: Dict[str, Tensor], n: int):  # noqa: UP006
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = self.a(batch["image"])
            for key in batch:
                y = y + batch[key].sum()
            return torch.cat([y, batch["image"]]), torch.prod(batch["image"], 1)


class DictInOrder(Model):
    """What comes first, and last, is another in another order."""

    def forward(self, batch: Dict[str, Tensor], n: int):  # noqa: UP006
        with torch.autocast("cpu", dtype=torch.bfloat16):
            values = list(batch.values())
            key = list(batch.keys())[1]
            return torch.prod(values[0], 1), torch.prod(values[1], 1), batch[key] @ batch[key].t()


class DictByKey(Model):
    def forward(self, batch: Dict[str, Tensor], n: int):  # noqa: UP006
        with torch.autocast("cpu", dtype=torch.bfloat16):
            results: List[Tensor] = []  # noqa: UP006
            for key in ["a", "b"]:
                results.append(torch.prod(batch[key], 1))
            first = [key for key in batch][0]  # noqa: RUF015
            return results, torch.prod(batch[first], 1)


class DictOrDefault(Model):
    def forward(self, batch: Dict[str, Tensor], other: Tensor, n: int):  # noqa: UP006
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = batch.get("image", other)
            product = torch.prod(y, 1)
            z = batch.get("mask")
            if z is not None:
                y = torch.cat([y, z])
            return product, torch.prod(y, 1), torch.cat([y, self.a(other)])


class DictOfLists(Model):
    def forward(self, batch: Dict[str, List[Tensor]], n: int):  # noqa: UP006
        with torch.autocast("cpu", dtype=torch.bfloat16):
            result = self.a(batch["a"][0])
            for key in batch:
                for x in batch[key]:
                    result = torch.cat([result, self.a(x)])
            return result, torch.prod(batch["b"][n], 1)


class TupleOf(Model):
    def forward(self, pair: Tuple[Tensor, Tuple[Tensor, int]], n: int):  # noqa: UP006
        with torch.autocast("cpu", dtype=torch.bfloat16):
            x, (y, k) = pair
            return self.a(x), torch.cat([x, self.a(x)]), y * k


class Pair(NamedTuple):
    left: Tensor
    right: Tensor


class Named(Model):
    def forward(self, pair: Pair, n: int):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.a(pair.left), torch.cat([pair.left, self.a(pair.right)])


class Tuples(Model):
    def forward(self, pairs: List[Tuple[Tensor, Tensor]], n: int):  # noqa: UP006
        with torch.autocast("cpu", dtype=torch.bfloat16):
            x, y = pairs[n]
            return self.a(x), torch.cat([x, self.a(x)]), y * 2


class MaybeGiven(Model):
    def forward(self, x: Tensor, y: Optional[Tensor], n: int):  # noqa: UP045
        with torch.autocast("cpu", dtype=torch.bfloat16):
            z = x if y is None else y
            return torch.prod(z, 1), torch.cat([self.a(x), z])


class Grows(Model):
    def forward(self, xs: List[Tensor], n: int):  # noqa: UP006
        with torch.autocast("cpu", dtype=torch.bfloat16):
            for _ in range(n):
                xs.append(self.a(xs[0]))
            return torch.prod(xs[-1], 1), torch.cat([xs[-1], xs[0]])


class Nested(Model):
    """A dictionary in another container, taken by its order."""

    def forward(self, p: Tuple[Dict[str, Tensor], int], n: int):  # noqa: UP006
        with torch.autocast("cpu", dtype=torch.bfloat16):
            v = list(p[0].values())
            return v[0] @ v[0].t(), torch.prod(v[0], 1), torch.cat([v[0], self.a(v[0])])


class NestedInAList(Model):
    def forward(self, xs: List[Dict[str, Tensor]], n: int):  # noqa: UP006
        with torch.autocast("cpu", dtype=torch.bfloat16):
            v = list(xs[0].values())
            return torch.prod(v[0], 1), torch.cat([v[0], self.a(v[0])])


class PlainContainers(Model):
    def forward(
        self,
        x: Tensor,
        a: Optional[List[int]],  # noqa: UP006, UP045
        b: List[Tuple[int, int]],  # noqa: UP006
        c: Dict[str, List[float]],  # noqa: UP006
        n: int,
    ):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            if a is not None:
                x = x.reshape(a)
            return self.a(x) * float(b[0][0]), torch.prod(x * c["k"][0], 1)


class Empty(Model):
    def forward(self, x: Tensor, xs: List[Tensor], n: int):  # noqa: UP006
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = torch.cat([self.a(x)] + xs)  # noqa: RUF005
            return y @ y.t(), torch.prod(y, 1)


class Clamps(Model):
    def forward(self, x: Tensor, lo: Optional[Tensor], hi: Optional[Tensor], n: int):  # noqa: UP045
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = torch.clamp(self.a(x), lo, hi)
            return y @ y.t(), torch.prod(y, 1), y


class Rounds(Model):
    def forward(self, x: Tensor, mode: Optional[str], n: int):  # noqa: UP045
        with torch.autocast("cpu", dtype=torch.bfloat16):
            i = torch.ones(4, 4, dtype=torch.int64)
            y = torch.div(i, i * 2, rounding_mode=mode)
            return torch.prod(y, 1), torch.cat([self.a(x), y.float()])


class Adds(Model):
    def forward(self, x: Tensor, b: Tensor, n: int):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = self.a(x) + b
            return y @ y.t(), y, y.dtype == torch.bfloat16


def x() -> Tensor:
    return torch.randn(2, 4)


def mask() -> Tensor:
    return torch.ones(2, 4, dtype=torch.int64)


CASES: dict[str, tuple[Callable[[], nn.Module], Callable[[], tuple[Any, ...]]]] = {
    "list": (ListOf, lambda: ([x(), x()], 1)),
    "dict": (DictOf, lambda: ({"image": x(), "mask": mask()}, 1)),
    "batch": (Batch, lambda: ({"image": x(), "other": x()}, 1)),
    "dict by key": (DictByKey, lambda: ({"a": x(), "b": x().bfloat16()}, 1)),
    "dict in order": (DictInOrder, lambda: ({"a": x(), "b": x().bfloat16()}, 1)),
    "dict in order, alike": (DictInOrder, lambda: ({"a": x(), "b": x()}, 1)),
    "dict or default": (DictOrDefault, lambda: ({"image": x()}, x().bfloat16(), 1)),
    "dict of lists": (DictOfLists, lambda: ({"a": [x()], "b": [x(), x()]}, 1)),
    "tuple": (TupleOf, lambda: ((x(), (mask(), 3)), 1)),
    "named tuple": (Named, lambda: (Pair(x(), x().bfloat16()), 1)),
    "list of tuples": (Tuples, lambda: ([(x(), mask()), (x(), mask())], 1)),
    "given": (MaybeGiven, lambda: (x(), x(), 1)),
    "not given": (MaybeGiven, lambda: (x(), None, 1)),
    "nested": (Nested, lambda: (({"a": x(), "b": x().bfloat16()}, 1), 1)),
    "nested in a list": (NestedInAList, lambda: ([{"a": x(), "b": x().bfloat16()}], 1)),
    "plain containers": (PlainContainers, lambda: (x(), [2, 4], [(1, 2)], {"k": [2.0]}, 1)),
    "plain, none": (PlainContainers, lambda: (x(), None, [(1, 2)], {"k": [2.0]}, 1)),
    "an empty list": (Empty, lambda: (x(), [], 1)),
    "a list": (Empty, lambda: (x(), [x()], 1)),
    "no bound": (Clamps, lambda: (x(), None, torch.ones(4).bfloat16(), 1)),
    "a bound": (Clamps, lambda: (x(), torch.zeros(4), None, 1)),
    "rounding": (Rounds, lambda: (x(), "floor", 1)),
    "no dimensions": (Adds, lambda: (x(), torch.tensor(1.0), 1)),
    "dimensions": (Adds, lambda: (x(), torch.ones(4), 1)),
    "grows": (Grows, lambda: ([x()], 1)),
}


def tensors_changed(value: Any) -> Iterator[Any]:
    """The value with one of its tensors of another dtype, or not given, or in another order."""
    if isinstance(value, Tensor):
        yield from (value.to(dtype) for dtype in (torch.bfloat16, torch.float64, torch.float16))
        yield value.to(torch.float32)
        yield from (None, torch.tensor(2.0), torch.ones(4))
    elif value is None or isinstance(value, str):
        yield from (x(), x().bfloat16(), "trunc", None)
    elif isinstance(value, list):
        yield from ([*value, *value], [], [*value, x()], [*value, x().bfloat16()])
        for i, part in enumerate(value):
            yield from ([*value[:i], new, *value[i + 1 :]] for new in tensors_changed(part))
    elif isinstance(value, dict):
        yield dict(reversed(value.items()))
        for key, part in value.items():
            yield {k: v for k, v in value.items() if k != key}
            yield from ({**value, key: new} for new in tensors_changed(part))
            yield {**value, "more": part}
            yield from ({**value, "more": new} for new in tensors_changed(part))
    elif isinstance(value, tuple):
        for i, part in enumerate(value):
            for new in tensors_changed(part):
                parts = [*value[:i], new, *value[i + 1 :]]
                yield type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)


@pytest.mark.parametrize("name", CASES)
@torch.no_grad()
def test_another_example_gives_eagers_result_or_is_refused(name: str) -> None:
    make, example = CASES[name]
    module = make().eval()
    frozen = jit_amp.freeze(module, example_inputs=example())
    for _ in range(3):
        given = example()
        assert_same(frozen(*copy.deepcopy(given)), module(*given), "like the example")
    refused = agreed = 0
    for given in tensors_changed(example()):
        for n in (0, 1):
            inputs = (*given[:-1], n)
            try:
                expected = module(*copy.deepcopy(inputs))
            except (RuntimeError, KeyError, IndexError, TypeError, AttributeError):
                with pytest.raises((RuntimeError, torch.jit.Error)):
                    frozen(*inputs)
                continue
            try:
                result = frozen(*inputs)
            except RuntimeError as error:  # TorchScript's types, which eager has not
                assert "Expected a value of type" in str(error)
            except torch.jit.Error as error:
                assert "This module was frozen by jit_amp with an example of that kind" in str(
                    error
                )
                refused += 1
            else:
                assert_same(result, expected, str(inputs))
                agreed += 1
    assert agreed
    if name not in ("rounding", "nested", "nested in a list"):
        assert refused


def questions(graph: torch._C.Graph) -> int:
    """How often a tensor is asked for its dtype, the check of the inputs aside."""
    found = 0
    for node in graph.nodes():
        found += node.kind() == "prim::If" and any(
            inner.kind() == "aten::to" for block in node.blocks() for inner in block.nodes()
        )
    return found


@pytest.mark.parametrize("name", ["batch", "list of tuples", "tuple", "named tuple"])
def test_with_examples_nothing_is_asked_at_run_time(name: str) -> None:
    make, example = CASES[name]
    module = make().eval()
    assert questions(jit_amp.freeze(module).graph)
    assert not questions(jit_amp.freeze(module, example_inputs=example()).graph)


def test_the_refusal_names_the_tensor() -> None:
    frozen = jit_amp.freeze(DictOf().eval(), example_inputs=({"image": x(), "mask": mask()}, 1))
    with pytest.raises(
        torch.jit.Error, match=r"`batch\['image'\]`: expected float32 on cpu, got float64"
    ):
        frozen({"image": x().double(), "mask": mask()}, 1)


def test_examples_that_differ_leave_their_part_unknown() -> None:
    module = DictOf().eval()
    examples = [({"image": x().to(dtype), "mask": mask()}, 1) for dtype in (torch.float32, BF16)]
    frozen = jit_amp.freeze(module, example_inputs=examples)
    with torch.no_grad():
        for dtype in (torch.float32, BF16):
            given = {"image": x().to(dtype), "mask": mask()}
            assert_same(frozen(given, 1), module(given, 1), str(dtype))


def test_an_artefact_keeps_its_check(tmp_path: Any) -> None:
    module, (_, example) = DictOf().eval(), CASES["dict"]
    torch.jit.save(jit_amp.freeze(module, example_inputs=example()), tmp_path / "model.pt")
    loaded = torch.jit.load(tmp_path / "model.pt")
    with torch.no_grad():
        given = example()
        assert_same(loaded(*given), module(*given), "loaded")
        with pytest.raises(
            torch.jit.Error, match=r"`batch\['mask'\]`: expected int64 on cpu, got float32"
        ):
            loaded({"image": x(), "mask": x()}, 1)
