"""Scopes made with plain attributes of a module, read from the instance at each call."""

# ruff: noqa: E501

import copy
import io
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
import torch
from expecttest import assert_expected_inline
from torch import Tensor, nn

import jit_amp

from ..support import AMBIENTS, DEFAULT, assert_same, known_warnings_ignored, refusal, tensors_of

BF16, F16, F32 = torch.bfloat16, torch.float16, torch.float32
X = torch.randn(4, 4, generator=torch.Generator().manual_seed(0))


def at(module: nn.Module, path: str) -> Any:
    for name in filter(None, path.split(".")):
        module = getattr(module, name)
    return module


def assign(module: nn.Module, values: Mapping[str, Any]) -> None:
    """Sets attributes of the module and of those below it, by dotted path."""
    for path, value in values.items():
        owner, _, name = path.rpartition(".")
        setattr(at(module, owner), name, value)


def assert_calls_agree(scripted: Any, eager: Callable[..., Any], where: str = "") -> None:
    """Parity of an object that is scripted already, around each ambient."""
    for name in DEFAULT:
        for count in range(2):
            with AMBIENTS[name](), known_warnings_ignored():
                expected = eager(X)
                assert_same(scripted(X), expected, f"{where}, ambient {name}, call {count + 1}")


def assert_follows(module: nn.Module, *changes: Mapping[str, Any]) -> list[list[torch.dtype]]:
    """Parity of one scripted object as it was made and after each change, made to both.

    Returns:
        The dtypes of the scripted results outside any autocast, as made and after each change.
    """
    scripted = jit_amp.script(copy.deepcopy(module))
    dtypes = []
    for values in ({}, *changes):
        assign(module, values)
        assign(scripted, values)
        assert_calls_agree(scripted, module, f"after {values}")
        with known_warnings_ignored():
            dtypes.append([t.dtype for t in tensors_of(scripted(X))])
    return dtypes


class Switched(nn.Module):
    def __init__(self, flag: bool = True) -> None:
        super().__init__()
        self.flag = flag

    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=self.flag):
            return torch.mm(x, x)


def test_enabled_follows_an_attribute() -> None:
    off, on = {"flag": False}, {"flag": True}
    assert assert_follows(Switched(), off, on, on, off) == [[BF16], [F32], [BF16], [BF16], [F32]]
    assert assert_follows(Switched(False), on) == [[F32], [BF16]]


class Negated(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.off = False

    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.float16, enabled=not self.off):
            return torch.mm(x, x)


def test_enabled_follows_the_negation_of_an_attribute() -> None:
    assert assert_follows(Negated(), {"off": True}, {"off": False}) == [[F16], [F32], [F16]]


class Combined(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = True, False

    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.float16, enabled=self.a and self.b):
            y = torch.mm(x, x)
        with torch.autocast("cpu", dtype=torch.float16, enabled=self.a or self.b):
            return y, torch.mm(x, x)


def test_enabled_follows_each_part_of_an_expression() -> None:
    changes = [{"b": True}, {"a": False}, {"b": False}]
    dtypes = [[F32, F16], [F16, F16], [F32, F16], [F32, F32]]
    assert assert_follows(Combined(), *changes) == dtypes


class Computed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.precision, self.level, self.a, self.b, self.first = "amp", 1, True, False, True

    def forward(self, x: Tensor):
        with torch.autocast("cpu", enabled=self.precision == "amp"):
            a = torch.mm(x, x)
        with torch.autocast("cpu", enabled=2 * self.level > 3):
            b = torch.mm(x, x)
        chosen = self.a if self.first else self.b
        with torch.autocast("cpu", enabled=chosen):
            return a, b, torch.mm(x, x)


def test_enabled_follows_what_is_computed_of_attributes() -> None:
    changes = [{"precision": "fp32"}, {"level": 2}, {"first": False}, {"b": True}]
    assert assert_follows(Computed(), *changes) == [
        [BF16, F32, BF16],
        [F32, F32, BF16],
        [F32, BF16, BF16],
        [F32, BF16, F32],
        [F32, BF16, BF16],
    ]


class Typed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.dtype, self.device_type = torch.float16, "cpu"

    def forward(self, x: Tensor):
        with torch.autocast(self.device_type, dtype=self.dtype):
            return torch.mm(x, x)


def test_dtype_and_device_type_follow_attributes() -> None:
    changes = [
        {"dtype": BF16},
        {"device_type": "cuda"},
        {"device_type": "cpu", "dtype": F16},
        {"dtype": F32},  # not one of autocast's on CPU: eager warns and switches it off
    ]
    assert assert_follows(Typed(), *changes) == [[F16], [BF16], [F32], [F16], [F32]]


def test_a_device_type_that_became_an_unknown_one_is_refused_at_the_call() -> None:
    scripted = jit_amp.script(Typed())
    scripted.device_type = "toaster"
    with pytest.raises((RuntimeError, torch.jit.Error), match="device_type 'toaster', which has"):
        scripted(X)
    scripted.device_type = "cpu"
    assert scripted(X).dtype is F16


class OfADevice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.device, self.cache = torch.device("cpu"), True

    def forward(self, x: Tensor):
        with torch.autocast(self.device.type, torch.bfloat16, True, self.cache):
            return torch.mm(x, x)


def test_a_scope_follows_the_device_of_an_attribute() -> None:
    changes = [{"cache": False}, {"device": torch.device("cuda", 1)}]
    assert assert_follows(OfADevice(), *changes) == [[BF16], [BF16], [F32]]


class Optionals(nn.Module):
    flag: bool | None
    dtype: torch.dtype | None

    def __init__(self, flag: bool | None, dtype: torch.dtype | None) -> None:
        super().__init__()
        self.flag, self.dtype = flag, dtype

    def forward(self, x: Tensor):
        flag = self.flag
        if flag is None:
            flag = True
        with torch.autocast("cpu", dtype=self.dtype, enabled=flag):
            return torch.mm(x, x)


@pytest.mark.parametrize("flag", [None, True, False])
@pytest.mark.parametrize("dtype", [None, F16])
def test_attributes_may_be_optional(flag: bool | None, dtype: torch.dtype | None) -> None:
    on, default = flag is not False, dtype or BF16
    changes = [{"flag": False}, {"flag": None}, {"dtype": BF16}, {"dtype": None}, {"flag": True}]
    dtypes = [default if on else F32, F32, default, BF16, BF16, BF16]
    assert assert_follows(Optionals(flag, dtype), *changes) == [[d] for d in dtypes]


class Property(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.precision = "amp"

    @property
    def amp(self) -> bool:
        return self.precision == "amp"

    def forward(self, x: Tensor):
        with torch.autocast("cpu", enabled=self.amp):
            return torch.mm(x, x)


def test_enabled_follows_what_a_property_reads() -> None:
    assert assert_follows(Property(), {"precision": "fp32"}) == [[BF16], [F32]]


def multiplied(x: Tensor, enabled: bool):
    with torch.autocast("cpu", enabled=enabled):
        return torch.mm(x, x)


class HandsOn(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.flag = True

    def method(self, x: Tensor, enabled: bool):
        with torch.autocast("cpu", enabled=enabled):
            return torch.mm(x, x)

    def forward(self, x: Tensor):
        flag = self.flag
        scope = torch.autocast("cpu", dtype=torch.float16, enabled=flag)
        with scope:
            y = torch.mm(x, x)
        return multiplied(x, flag), self.method(x, not self.flag), y


def test_an_attribute_is_followed_through_helpers_and_methods() -> None:
    assert assert_follows(HandsOn(), {"flag": False}) == [[BF16, F32, F16], [F32, BF16, F32]]


# Submodules.


class Pair(nn.Module):
    def __init__(self, first: nn.Module, second: nn.Module) -> None:
        super().__init__()
        self.first, self.second = first, second

    def forward(self, x: Tensor):
        return self.first(x), self.second(x)


def test_two_instances_of_a_class_have_an_attribute_each() -> None:
    changes = [{"first.flag": False}, {"second.flag": True}, {"first.flag": True}]
    dtypes = [[BF16, F32], [F32, F32], [F32, BF16], [BF16, BF16]]
    assert assert_follows(Pair(Switched(), Switched(False)), *changes) == dtypes


def test_paths_of_attributes_may_be_long() -> None:
    module = Pair(
        Pair(Switched(), Switched(False)), Pair(Switched(False), Pair(Switched(), Negated()))
    )
    changes = [
        {"second.second.first.flag": False},
        {"first.second.flag": True},
        {"second.second.second.off": True},
    ]
    assert assert_follows(module, *changes) == [
        [BF16, F32, F32, BF16, F16],
        [BF16, F32, F32, F32, F16],
        [BF16, BF16, F32, F32, F16],
        [BF16, BF16, F32, F32, F32],
    ]


class Reaching(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = Pair(Switched(), Switched(False))

    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.float16, enabled=self.inner.second.flag):
            return torch.mm(x, x), self.inner.first(x)


def test_an_attribute_of_a_module_below_is_followed() -> None:
    changes = [{"inner.second.flag": True}, {"inner.first.flag": False}]
    assert assert_follows(Reaching(), *changes) == [[F32, BF16], [F16, BF16], [F16, F32]]


class Containers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.list = nn.ModuleList([Switched(), Switched(False)])
        self.dict = nn.ModuleDict({"a": Switched(False), "b": Switched()})
        self.sequential = nn.Sequential(nn.Identity(), Switched())

    def forward(self, x: Tensor):
        found = [layer(x) for layer in self.list]
        for layer in self.list:
            found.append(layer(x))
        for layer in self.dict.values():
            found.append(layer(x))
        return found, self.list[1](x), self.dict["a"](x), self.sequential(x)


def test_attributes_of_modules_in_containers_are_followed() -> None:
    changes = [{"list.1.flag": True}, {"dict.a.flag": True, "sequential.1.flag": False}]
    assert assert_follows(Containers(), *changes) == [
        [BF16, F32, BF16, F32, F32, BF16, F32, F32, BF16],
        [BF16, BF16, BF16, BF16, F32, BF16, BF16, F32, BF16],
        [BF16, BF16, BF16, BF16, BF16, BF16, BF16, BF16, F32],
    ]


class Forking(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.flag = True
        self.inner = Pair(Switched(), Switched(False))

    def method(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.float16, enabled=self.flag):
            return torch.mm(x, x)

    def forks(self, x: Tensor):
        return torch.jit.wait(torch.jit.fork(self.inner.second, x)), self.method(x)

    def forward(self, x: Tensor):
        method = torch.jit.fork(self.method, x)
        first = torch.jit.fork(self.inner.first, x)
        nested = torch.jit.fork(self.forks, x)
        return torch.jit.wait(method), torch.jit.wait(first), torch.jit.wait(nested)


def test_attributes_are_followed_in_forked_tasks() -> None:
    changes = [{"flag": False}, {"inner.first.flag": False}, {"inner.second.flag": True}]
    assert assert_follows(Forking(), *changes) == [
        [F16, BF16, F32, F16],
        [F32, BF16, F32, F32],
        [F32, F32, F32, F32],
        [F32, F32, BF16, F32],
    ]


class ForksWithAnAttribute(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.flag = True

    def forward(self, x: Tensor):
        return torch.jit.wait(torch.jit.fork(multiplied, x, self.flag))


def test_an_attribute_that_is_handed_to_a_forked_task_is_followed() -> None:
    assert assert_follows(ForksWithAnAttribute(), {"flag": False}) == [[BF16], [F32]]


@torch.jit.interface
class Multiplying(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        pass


class SwitchedBehindAnInterface(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.flag = True

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", enabled=self.flag):
            return torch.mm(x, x)


class CallsAnInterface(nn.Module):
    inner: Multiplying

    def __init__(self) -> None:
        super().__init__()
        self.inner = SwitchedBehindAnInterface()

    def forward(self, x: Tensor):
        y = self.inner.forward(x)
        with torch.autocast("cpu", dtype=torch.float16):
            return y, self.inner.forward(x)


def test_an_attribute_behind_an_interface_is_followed() -> None:
    changes = [{"inner.flag": False}, {"inner.flag": True}]
    assert assert_follows(CallsAnInterface(), *changes) == [[BF16, F16], [F32, F32], [BF16, F16]]


class InTraining(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(Switched())

    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.float16, enabled=self.training):
            y = torch.mm(x, x)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=not self.inner.training):
            return y, torch.mm(x, x)


def test_train_and_eval_switch_a_scope() -> None:
    module = InTraining()
    scripted = jit_amp.script(copy.deepcopy(module))
    for training, dtypes in ((True, [F16, F32]), (False, [F32, BF16]), (True, [F16, F32])):
        module.train(training)
        scripted.train(training)
        assert_calls_agree(scripted, module, f"training={training}")
        assert [t.dtype for t in scripted(X)] == dtypes
    module.inner.eval()
    scripted.inner.eval()
    assert_calls_agree(scripted, module, "inner.eval()")
    assert [t.dtype for t in scripted(X)] == [F16, BF16]


class Methods(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.flag, self.inner = True, Switched()

    def forward(self, x: Tensor):
        return self.inner(x)

    @torch.jit.export
    def other(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.float16, enabled=self.flag):
            return torch.mm(x, x), self.inner(x)


def test_every_method_and_submodule_follows_when_it_is_called_alone() -> None:
    module = Methods()
    scripted = jit_amp.script(copy.deepcopy(module))
    for values in ({}, {"inner.flag": False}, {"flag": False}, {"flag": True, "inner.flag": True}):
        assign(module, values)
        assign(scripted, values)
        assert_calls_agree(scripted, module, f"forward, {values}")
        assert_calls_agree(scripted.other, module.other, f"other, {values}")
        assert_calls_agree(scripted.inner, module.inner, f"inner, {values}")


# Copies.


def test_the_module_that_was_scripted_is_not_followed() -> None:
    # Its scripted one has attributes of its own, as with torch.jit.script.
    module = Switched()
    scripted = jit_amp.script(module)
    module.flag = False
    assert scripted.flag is True
    assert scripted(X).dtype is BF16
    scripted.flag = False
    assert scripted(X).dtype is F32


def test_a_module_is_scripted_with_the_value_that_it_has_by_then() -> None:
    module = Switched()
    scripted = torch.jit.script(module)
    scripted.flag = module.flag = False
    assert jit_amp.script(module)(X).dtype is F32
    assert jit_amp.script(scripted)(X).dtype is F32


def test_a_copy_has_attributes_of_its_own() -> None:
    scripted = jit_amp.script(Pair(Switched(), Switched()))
    scripted(X)
    other = copy.deepcopy(scripted)
    other.first.flag = False
    for _ in range(3):
        assert [t.dtype for t in scripted(X)] == [BF16, BF16]
        assert [t.dtype for t in other(X)] == [F32, BF16]
    scripted.second.flag = False
    assert [t.dtype for t in scripted(X)] == [BF16, F32]
    assert [t.dtype for t in other(X)] == [F32, BF16]
    other.first.flag = True
    assert [t.dtype for t in other.first(X)[None]] == [BF16]


def test_what_ran_for_a_module_does_not_run_for_one_at_its_address() -> None:
    scripted = jit_amp.script(Switched())
    for count in range(50):
        other = copy.deepcopy(scripted)
        other.flag = count % 3 == 0
        assert other(X).dtype is (BF16 if other.flag else F32)
        del other


def test_a_plainly_scripted_caller_follows() -> None:
    inner = jit_amp.script(Switched())
    module = Pair(Switched(), Switched())
    scripted = torch.jit.script(Pair(inner, copy.deepcopy(inner)))
    for first, second in ((True, True), (False, True), (True, False)):
        assign(module, {"first.flag": first, "second.flag": second})
        assign(scripted, {"first.flag": first, "second.flag": second})
        assert_calls_agree(scripted, module, f"{first}, {second}")
    inner.flag = False  # the very module
    assert [t.dtype for t in scripted(X)] == [F32, F32]


def saved_and_loaded(scripted: Any) -> Any:
    buffer = io.BytesIO()
    torch.jit.save(scripted, buffer)
    buffer.seek(0)
    return torch.jit.load(buffer)


@pytest.mark.parametrize(
    ("module", "change", "dtypes"),
    [
        (Pair(Switched(), Switched()), {"second.flag": False}, [BF16, F32]),
        (Typed(), {"dtype": BF16}, [BF16]),
        (Optionals(None, F16), {"dtype": None, "flag": True}, [BF16]),
        (CallsAnInterface(), {"inner.flag": False}, [F32, F32]),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, nn.Module) else "",
)
def test_a_loaded_module_that_is_scripted_again_follows(
    module: nn.Module, change: Mapping[str, Any], dtypes: Sequence[torch.dtype]
) -> None:
    module = copy.deepcopy(module)
    scripted = jit_amp.script(module)
    scripted(X)
    assign(scripted, change)
    loaded = jit_amp.script(saved_and_loaded(scripted))  # with the value when it was saved
    for _ in range(3):
        assert [t.dtype for t in tensors_of(loaded(X))] == list(dtypes)
    before = {path: at(module, path) for path in change}
    assign(loaded, before)
    assert_calls_agree(loaded, module, "changed after loading")


# Freezing.


def frozen(module: nn.Module, **options: Any) -> Any:
    return jit_amp.freeze(module, example_inputs=(X,), **options)


@pytest.mark.parametrize("scripted", [False, True])
def test_a_frozen_module_has_the_value_that_it_was_frozen_with(scripted: bool) -> None:
    module: Any = Pair(Switched(), Pair(Switched(False), Optionals(None, F16))).eval()
    if scripted:
        module = jit_amp.script(module)
        module(X)
    first = frozen(module)
    assign(module, {"first.flag": False, "second.second.dtype": BF16})
    second = frozen(module)
    assign(module, {"second.first.flag": True})
    for _ in range(3):
        assert [t.dtype for t in tensors_of(first(X))] == [BF16, F32, F16]
        assert [t.dtype for t in tensors_of(second(X))] == [F32, F32, BF16]
        assert [t.dtype for t in tensors_of(module(X))] == [F32, BF16, BF16]


def test_freezing_takes_training_to_be_off() -> None:
    module = InTraining().eval()
    assert_same(frozen(module)(X), module(X), "frozen")


class Preserved(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.flag, self.scale, self.inner = True, 2.0, Switched()

    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.float16, enabled=self.flag):
            y = torch.mm(x, x)
        return y * self.scale, self.inner(x)

    @torch.jit.export
    def other(self, x: Tensor):
        with torch.autocast("cpu", enabled=not self.flag):
            return torch.mm(x, x)


def test_preserving_an_attribute_that_a_scope_rests_on_is_refused() -> None:
    with pytest.raises(jit_amp.AutocastError) as raised:
        frozen(Preserved().eval(), preserved_attrs=["flag"])
    assert_expected_inline(
        str(raised.value),
        """\
jit_amp: `flag` decides about an autocast scope, and `flag` is to be preserved: a frozen scope does not change any more  [JA305]

Instead: one frozen module for each value of it

More: jit-amp errors JA305, or docs/errors.md#ja305""",
    )


def test_preserving_an_attribute_of_a_submodule_that_a_scope_rests_on_is_refused() -> None:
    with pytest.raises(
        jit_amp.AutocastError, match=r"`inner\.flag` decides about an autocast scope"
    ):
        frozen(Preserved().eval(), preserved_attrs=["inner.flag"])


def test_preserving_a_submodule_with_an_attribute_that_a_scope_rests_on_is_refused() -> None:
    with pytest.raises(jit_amp.AutocastError, match="inner"):
        frozen(Preserved().eval(), preserved_attrs=["inner"])


def test_other_attributes_and_methods_may_be_preserved() -> None:
    module = Preserved().eval()
    artefact = frozen(module, preserved_attrs=["scale", "other"])
    artefact.scale = module.scale = 3.0
    assert_same(artefact(X), module(X), "forward")
    assert_same(artefact.other(X), module.other(X), "other")


# What is refused.


class AssignedInForward(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = True

    def forward(self, x: Tensor):
        with torch.autocast("cpu", enabled=self.first):
            y = torch.mm(x, x)
        self.first = False
        return y


def test_an_attribute_that_forward_assigns_is_refused() -> None:
    assert_expected_inline(
        refusal(AssignedInForward()),
        """\
jit_amp: an autocast scope that rests on `self.first`, which the module's own code assigns  [JA116]

  File "FILE", line N
    def forward(self, x: Tensor):
        with torch.autocast("cpu", enabled=self.first):
             ~~~~~~~~~~~~~~ <--- HERE
            y = torch.mm(x, x)
        self.first = False

Instead: an attribute that only __init__ assigns, or two branches with a `with` in each: `if self.flag:` / `with torch.autocast(...)` / `else:`

More: jit-amp errors JA116, or docs/errors.md#ja116""",
    )


class AssignedInAMethod(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.dtype = torch.float16

    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=self.dtype):
            return torch.mm(x, x)

    @torch.jit.export
    def use(self, dtype: torch.dtype):
        self.dtype = dtype


def test_an_attribute_that_another_method_assigns_is_refused() -> None:
    assert_expected_inline(
        refusal(AssignedInAMethod()),
        """\
jit_amp: an autocast scope that rests on `self.dtype`, which the module's own code assigns  [JA116]

  File "FILE", line N
    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=self.dtype):
             ~~~~~~~~~~~~~~ <--- HERE
            return torch.mm(x, x)

Instead: an attribute that only __init__ assigns, or two branches with a `with` in each: `if self.flag:` / `with torch.autocast(...)` / `else:`

More: jit-amp errors JA116, or docs/errors.md#ja116""",
    )


class AssignsBelow(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.switched = Switched()

    def forward(self, x: Tensor, flag: bool):
        self.switched.flag = flag
        return self.switched(x)


def test_an_attribute_that_a_module_above_assigns_is_refused() -> None:
    assert_expected_inline(
        refusal(AssignsBelow()),
        """\
jit_amp: an autocast scope that rests on `self.switched.flag`, which the module's own code assigns  [JA116]

  File "FILE", line N
    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=self.flag):
             ~~~~~~~~~~~~~~ <--- HERE
            return torch.mm(x, x)

Instead: an attribute that only __init__ assigns, or two branches with a `with` in each: `if self.flag:` / `with torch.autocast(...)` / `else:`

More: jit-amp errors JA116, or docs/errors.md#ja116""",
    )


def flip(self, given: tuple[Tensor]) -> None:
    self.flag = not self.flag


def switched_by_a_hook() -> Switched:
    module = Switched()
    module.register_forward_pre_hook(flip)
    return module


class HoldsOneWithAHook(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.switched = switched_by_a_hook()

    def forward(self, x: Tensor):
        return self.switched(x)


def test_an_attribute_that_a_hook_of_a_submodule_assigns_is_refused() -> None:
    """It runs within the call."""
    assert "rests on `self.switched.flag`, which the module's own" in refusal(HoldsOneWithAHook())


def test_an_attribute_that_a_hook_of_the_module_itself_assigns_is_read_after_it() -> None:
    """Python runs it before the call."""
    scripted, eager = jit_amp.script(switched_by_a_hook()), switched_by_a_hook()
    for _ in range(4):
        assert_same(scripted(X), eager(X), "a call")


class AssignedInAFork(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.flag = True

    def switch(self, x: Tensor):
        if x.sum() > 0:
            self.flag = not self.flag
        return x

    def forward(self, x: Tensor):
        future = torch.jit.fork(self.switch, x)
        with torch.autocast("cpu", enabled=not self.flag):
            return torch.mm(x, x), torch.jit.wait(future)


def test_an_attribute_that_a_forked_task_assigns_is_refused() -> None:
    assert "rests on `self.flag`, which the module's own code assigns" in refusal(AssignedInAFork())


class AssignedInIgnoredPython(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.flag = True

    @torch.jit.ignore
    def switch(self, x: Tensor) -> Tensor:
        self.flag = not self.flag
        return x

    def forward(self, x: Tensor):
        x = self.switch(x)
        with torch.autocast("cpu", enabled=self.flag):
            return torch.mm(x, x)


def test_an_attribute_that_ignored_python_assigns_within_the_call_is_refused_there() -> None:
    scripted = jit_amp.script(AssignedInIgnoredPython())
    with pytest.raises(jit_amp.AutocastError, match=r"rests on `self\.flag`, .*JA116"):
        scripted(X)


def test_a_refusal_of_an_assigned_attribute_is_freezes_too() -> None:
    with pytest.raises(jit_amp.AutocastError) as raised:
        frozen(AssignedInForward().eval())
    with pytest.raises(jit_amp.AutocastError) as scripted:
        jit_amp.script(AssignedInForward())
    assert str(raised.value) == str(scripted.value)


class AssignsAnother(nn.Module):
    """Assigns an attribute of that name, of another class; and one that no scope rests on."""

    def __init__(self) -> None:
        super().__init__()
        self.flag, self.calls, self.inner = True, 0, Switched()

    def forward(self, x: Tensor):
        self.flag = not self.flag
        self.calls += 1
        return self.inner(x), self.flag, self.calls


def test_attributes_that_no_scope_rests_on_may_be_assigned() -> None:
    module = AssignsAnother()
    scripted = jit_amp.script(copy.deepcopy(module))
    assert_calls_agree(scripted, module)
    scripted.inner.flag = module.inner.flag = False
    assert_calls_agree(scripted, module)
    assert scripted(X)[0].dtype is F32


@torch.jit.script
class Config:
    def __init__(self, flag: bool):
        self.flag = flag


class Configured(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.config = Config(True)

    def forward(self, x: Tensor):
        with torch.autocast("cpu", enabled=self.config.flag):
            return torch.mm(x, x)


def test_an_attribute_of_an_object_that_is_no_module_is_refused() -> None:
    assert_expected_inline(
        refusal(Configured()),
        """\
jit_amp: autocast's `enabled` is known only at run time, and a scripted scope needs it when compiling  [JA101]

  File "FILE", line N
    def forward(self, x: Tensor):
        with torch.autocast("cpu", enabled=self.config.flag):
             ~~~~~~~~~~~~~~ <--- HERE
            return torch.mm(x, x)

Instead: a constant, an attribute of the module, or a choice of the whole scope: `with torch.autocast(...) if flag else nullcontext():`

More: jit-amp errors JA101, or docs/errors.md#ja101""",
    )


class Listed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.flags = [True, False]

    def forward(self, x: Tensor):
        self.flags[1] = self.flags[0]
        with torch.autocast("cpu", enabled=self.flags[0]):
            return torch.mm(x, x)


class Buffered(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("on", torch.tensor(True))

    def forward(self, x: Tensor):
        with torch.autocast("cpu", enabled=bool(self.on)):
            return torch.mm(x, x)


class MixedWithAnArgument(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.flag = True

    def forward(self, x: Tensor, flag: bool):
        with torch.autocast("cpu", enabled=self.flag and flag):
            return torch.mm(x, x)


@pytest.mark.parametrize(
    "module",
    [Listed(), Buffered(), MixedWithAnArgument()],
    ids=lambda module: type(module).__name__,
)
def test_what_can_change_without_an_assignment_is_refused(module: nn.Module) -> None:
    assert "autocast's `enabled` is known only at run time" in refusal(module)
