"""Refusals: what cannot be known when compiling is told then, with the line and what to write."""

# ruff: noqa: E501

import threading
from collections.abc import Callable
from typing import Any, Final

import pytest
import torch
from expecttest import assert_expected_inline
from torch import Tensor, nn

import jit_amp

from ..support import autocast_state, refusal


def enabled_is_an_argument(x: Tensor, on: bool):
    with torch.autocast("cpu", enabled=on):
        return x @ x


def enabled_is_an_expression(x: Tensor, n: int):
    y = x + n
    with torch.autocast("cpu", enabled=n > 3):
        return y @ y


def enabled_is_computed(x: Tensor):
    with torch.autocast("cpu", enabled=bool(x.sum() > 0)):
        return x @ x


def switched(x: Tensor, on: bool):
    with torch.autocast("cpu", enabled=on):
        return x @ x


def enabled_is_a_helpers_argument(x: Tensor, on: bool):
    return switched(x, on)


class EnabledIsAssigned(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.on = True

    def forward(self, x: Tensor):
        with torch.autocast("cpu", enabled=self.on):
            return x @ x

    @torch.jit.export
    def switch(self, on: bool):
        self.on = on


def scope_is_chosen_by_an_expression(x: Tensor, on: bool):
    scope = torch.autocast("cpu") if on else torch.autocast("cpu", enabled=False)
    scope.__enter__()
    y = x @ x
    scope.__exit__(None, None, None)
    return y


def scope_is_chosen_by_a_branch(x: Tensor, on: bool):
    scope = torch.autocast("cpu")
    if on:
        scope = torch.autocast("cpu", enabled=False)
    scope.__enter__()
    y = x @ x
    scope.__exit__(None, None, None)
    return y


def scope_changes_in_a_loop(x: Tensor):
    scope = torch.autocast("cpu")
    for _ in range(3):
        scope.__enter__()
        x = x @ x.to(x.dtype)
        scope.__exit__(None, None, None)
        scope = torch.autocast("cpu", enabled=False)
    return x


def dtype_is_the_tensors(x: Tensor):
    with torch.autocast("cpu", dtype=x.dtype):
        return x @ x


def default_dtype_in_a_runtime_device(x: Tensor):
    with (
        torch.autocast(x.device.type, dtype=torch.float16),
        torch.autocast(x.device.type),
    ):
        return x @ x


def known_device_in_a_runtime_device(x: Tensor):
    with torch.autocast(x.device.type, dtype=torch.float16), torch.autocast("cpu"):
        return x @ x


def device_is_unknown(x: Tensor):
    with torch.autocast("toaster"):
        return x @ x


def device_has_an_index(x: Tensor):
    with torch.autocast("cpu:0"):
        return x @ x


def device_has_no_autocast(x: Tensor):
    with torch.autocast("meta"):
        return x @ x


def scope_is_returned(x: Tensor):
    scope = torch.autocast("cpu")
    with scope:
        x = x @ x
    return scope


def scope_is_returned_in_a_tuple(x: Tensor):
    scope = torch.autocast("cpu")
    with scope:
        y = x @ x
    return y, scope


def entered_scope_is_returned(x: Tensor):
    with torch.autocast("cpu") as scope:
        x @ x
    return scope


def scope_is_stored(x: Tensor):
    scopes = [torch.autocast("cpu"), torch.autocast("cpu", enabled=False)]
    for scope in scopes:
        with scope:
            x = x @ x.float()
    return x


def field_is_read(x: Tensor):
    scope = torch.autocast("cpu")
    with scope:
        y = x @ x
    return y, scope._enabled


def field_is_written(x: Tensor):
    scope = torch.autocast("cpu")
    scope._enabled = False
    with scope:
        return x @ x


def entered_and_never_left(x: Tensor):
    scope = torch.autocast("cpu")
    scope.__enter__()
    return x @ x


def entered_in_another_block(x: Tensor, on: bool):
    scope = torch.autocast("cpu")
    if on:
        scope.__enter__()
    y = x @ x
    scope.__exit__(None, None, None)
    return y


def left_in_another_block(x: Tensor, on: bool):
    scope = torch.autocast("cpu")
    scope.__enter__()
    y = x @ x
    if on:
        scope.__exit__(None, None, None)
    return y


def left_twice(x: Tensor):
    scope = torch.autocast("cpu")
    scope.__enter__()
    y = x @ x
    scope.__exit__(None, None, None)
    scope.__exit__(None, None, None)
    return y


def left_in_another_order(x: Tensor):
    outer_scope = torch.autocast("cpu")
    inner_scope = torch.autocast("cpu", enabled=False)
    outer_scope.__enter__()
    inner_scope.__enter__()
    y = x @ x
    outer_scope.__exit__(None, None, None)
    inner_scope.__exit__(None, None, None)
    return y


def scope_is_an_argument(x: Tensor, scope: torch.autocast):
    with scope:
        return x @ x


class RefusedInAMethod(nn.Module):
    def forward(self, x: Tensor):
        with torch.autocast("cpu"):
            return x @ x

    @torch.jit.export
    def other(self, x: Tensor, on: bool):
        with torch.autocast("cpu", enabled=on):
            return x @ x


class RefusedInASubmodule(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = EnabledIsAssigned()

    def forward(self, x: Tensor):
        return self.inner(x)


def name_of(refused: Any) -> str:
    return getattr(refused, "__name__", type(refused).__name__)


# The texts.


def test_enabled_as_an_argument_is_refused() -> None:
    assert_expected_inline(
        refusal(enabled_is_an_argument),
        """\
jit_amp: autocast's `enabled` is known only at run time, and a scripted scope needs it when compiling  [JA101]

  File "FILE", line N
def enabled_is_an_argument(x: Tensor, on: bool):
    with torch.autocast("cpu", enabled=on):
         ~~~~~~~~~~~~~~ <--- HERE
        return x @ x

Instead: a constant, an attribute of the module, or a choice of the whole scope: `with torch.autocast(...) if flag else nullcontext():`

More: jit-amp errors JA101, or docs/errors.md#ja101""",
    )


def test_enabled_as_an_expression_is_refused() -> None:
    assert_expected_inline(
        refusal(enabled_is_an_expression),
        """\
jit_amp: autocast's `enabled` is known only at run time, and a scripted scope needs it when compiling  [JA101]

  File "FILE", line N
def enabled_is_an_expression(x: Tensor, n: int):
    y = x + n
    with torch.autocast("cpu", enabled=n > 3):
         ~~~~~~~~~~~~~~ <--- HERE
        return y @ y

Instead: a constant, an attribute of the module, or a choice of the whole scope: `with torch.autocast(...) if flag else nullcontext():`

More: jit-amp errors JA101, or docs/errors.md#ja101""",
    )


def test_a_helpers_scope_is_refused_at_the_helpers_line() -> None:
    assert_expected_inline(
        refusal(enabled_is_a_helpers_argument),
        """\
jit_amp: autocast's `enabled` is known only at run time, and a scripted scope needs it when compiling  [JA101]

  File "FILE", line N
def switched(x: Tensor, on: bool):
    with torch.autocast("cpu", enabled=on):
         ~~~~~~~~~~~~~~ <--- HERE
        return x @ x

Instead: a constant, an attribute of the module, or a choice of the whole scope: `with torch.autocast(...) if flag else nullcontext():`

More: jit-amp errors JA101, or docs/errors.md#ja101""",
    )


def test_enabled_as_an_attribute_that_is_assigned_is_refused() -> None:
    assert_expected_inline(
        refusal(EnabledIsAssigned()),
        """\
jit_amp: an autocast scope that rests on `self.on`, which the module's own code assigns  [JA116]

  File "FILE", line N
    def forward(self, x: Tensor):
        with torch.autocast("cpu", enabled=self.on):
             ~~~~~~~~~~~~~~ <--- HERE
            return x @ x

Instead: an attribute that only __init__ assigns, or two branches with a `with` in each: `if self.flag:` / `with torch.autocast(...)` / `else:`

More: jit-amp errors JA116, or docs/errors.md#ja116""",
    )


def test_a_conditional_choice_of_scope_is_refused() -> None:
    assert_expected_inline(
        refusal(scope_is_chosen_by_an_expression),
        """\
jit_amp: an autocast scope that is chosen by a condition at run time  [JA110]

  File "FILE", line N
def scope_is_chosen_by_an_expression(x: Tensor, on: bool):
    scope = torch.autocast("cpu") if on else torch.autocast("cpu", enabled=False)
            ~~~~~~~~~~~~~~ <--- HERE
    scope.__enter__()
    y = x @ x

Instead: `if` with a `with torch.autocast(...)` in each branch

More: jit-amp errors JA110, or docs/errors.md#ja110""",
    )


def test_a_runtime_dtype_is_refused() -> None:
    assert_expected_inline(
        refusal(dtype_is_the_tensors),
        """\
jit_amp: autocast's `dtype` is known only at run time, and a scripted scope needs it when compiling  [JA101]

  File "FILE", line N
def dtype_is_the_tensors(x: Tensor):
    with torch.autocast("cpu", dtype=x.dtype):
         ~~~~~~~~~~~~~~ <--- HERE
        return x @ x

Instead: a constant, an attribute of the module, or a choice of the whole scope: `with torch.autocast(...) if flag else nullcontext():`

More: jit-amp errors JA101, or docs/errors.md#ja101""",
    )


def test_a_default_dtype_in_a_runtime_device_is_refused() -> None:
    assert_expected_inline(
        refusal(default_dtype_in_a_runtime_device),
        """\
jit_amp: an autocast scope without a dtype inside one whose device_type is known only at run time  [JA104]

  File "FILE", line N
    with (
        torch.autocast(x.device.type, dtype=torch.float16),
        torch.autocast(x.device.type),
        ~~~~~~~~~~~~~~ <--- HERE
    ):
        return x @ x

Instead: `dtype=torch.bfloat16` or another

More: jit-amp errors JA104, or docs/errors.md#ja104""",
    )


def test_an_unknown_device_is_refused() -> None:
    assert_expected_inline(
        refusal(device_is_unknown),
        """\
jit_amp: an autocast device_type 'toaster', which has no autocast  [JA106]

  File "FILE", line N
def device_is_unknown(x: Tensor):
    with torch.autocast("toaster"):
         ~~~~~~~~~~~~~~ <--- HERE
        return x @ x

Instead: "cuda", "cpu" or another device that torch.amp.is_autocast_available knows

More: jit-amp errors JA106, or docs/errors.md#ja106""",
    )


def test_a_scope_that_is_returned_is_refused() -> None:
    assert_expected_inline(
        refusal(scope_is_returned),
        """\
jit_amp: an autocast object that is used for anything but `with`  [JA112]

  File "FILE", line N
def scope_is_returned(x: Tensor):
    scope = torch.autocast("cpu")
            ~~~~~~~~~~~~~~ <--- HERE
    with scope:
        x = x @ x

Instead: `with torch.autocast(...):` around the statements

More: jit-amp errors JA112, or docs/errors.md#ja112""",
    )


def test_reading_a_field_of_a_scope_is_refused() -> None:
    assert_expected_inline(
        refusal(field_is_read),
        """\
jit_amp: an autocast object that is used for anything but `with`  [JA112]

  File "FILE", line N
def field_is_read(x: Tensor):
    scope = torch.autocast("cpu")
            ~~~~~~~~~~~~~~ <--- HERE
    with scope:
        y = x @ x

Instead: `with torch.autocast(...):` around the statements

More: jit-amp errors JA112, or docs/errors.md#ja112""",
    )


def test_storing_a_scope_is_refused() -> None:
    assert_expected_inline(
        refusal(scope_is_stored),
        """\
jit_amp: an autocast object that is used for anything but `with`  [JA112]

  File "FILE", line N
def scope_is_stored(x: Tensor):
    scopes = [torch.autocast("cpu"), torch.autocast("cpu", enabled=False)]
              ~~~~~~~~~~~~~~ <--- HERE
    for scope in scopes:
        with scope:

Instead: `with torch.autocast(...):` around the statements

More: jit-amp errors JA112, or docs/errors.md#ja112""",
    )


def test_a_scope_that_is_entered_and_never_left_is_refused() -> None:
    assert_expected_inline(
        refusal(entered_and_never_left),
        """\
jit_amp: an autocast scope that is entered and not left  [JA114]

  File "FILE", line N
def entered_and_never_left(x: Tensor):
    scope = torch.autocast("cpu")
    scope.__enter__()
    ~~~~~~~~~~~~~~~ <--- HERE
    return x @ x

Instead: `with`

More: jit-amp errors JA114, or docs/errors.md#ja114""",
    )


def test_entering_in_another_block_is_refused() -> None:
    assert_expected_inline(
        refusal(entered_in_another_block),
        """\
jit_amp: an autocast scope that is entered and not left  [JA114]

  File "FILE", line N
    scope = torch.autocast("cpu")
    if on:
        scope.__enter__()
        ~~~~~~~~~~~~~~~ <--- HERE
    y = x @ x
    scope.__exit__(None, None, None)

Instead: `with`

More: jit-amp errors JA114, or docs/errors.md#ja114""",
    )


def test_leaving_in_another_block_is_refused() -> None:
    assert_expected_inline(
        refusal(left_in_another_block),
        """\
jit_amp: autocast scopes that do not nest  [JA108]

  File "FILE", line N
    y = x @ x
    if on:
        scope.__exit__(None, None, None)
        ~~~~~~~~~~~~~~ <--- HERE
    return y

Instead: `with` blocks one inside the other

More: jit-amp errors JA108, or docs/errors.md#ja108""",
    )


def test_leaving_twice_is_refused() -> None:
    assert_expected_inline(
        refusal(left_twice),
        """\
jit_amp: autocast scopes that do not nest  [JA108]

  File "FILE", line N
    y = x @ x
    scope.__exit__(None, None, None)
    scope.__exit__(None, None, None)
    ~~~~~~~~~~~~~~ <--- HERE
    return y

Instead: `with` blocks one inside the other

More: jit-amp errors JA108, or docs/errors.md#ja108""",
    )


def test_leaving_in_another_order_is_refused() -> None:
    assert_expected_inline(
        refusal(left_in_another_order),
        """\
jit_amp: autocast scopes that do not nest  [JA108]

  File "FILE", line N
    inner_scope.__enter__()
    y = x @ x
    outer_scope.__exit__(None, None, None)
    ~~~~~~~~~~~~~~~~~~~~ <--- HERE
    inner_scope.__exit__(None, None, None)
    return y

Instead: `with` blocks one inside the other

More: jit-amp errors JA108, or docs/errors.md#ja108""",
    )


REFUSED: list[Any] = [
    enabled_is_an_argument,
    enabled_is_an_expression,
    enabled_is_computed,
    enabled_is_a_helpers_argument,
    EnabledIsAssigned(),
    scope_is_chosen_by_an_expression,
    scope_is_chosen_by_a_branch,
    scope_changes_in_a_loop,
    dtype_is_the_tensors,
    default_dtype_in_a_runtime_device,
    known_device_in_a_runtime_device,
    device_is_unknown,
    device_has_an_index,
    device_has_no_autocast,
    scope_is_returned,
    entered_and_never_left,
    entered_in_another_block,
    left_in_another_block,
    left_twice,
    left_in_another_order,
    entered_scope_is_returned,
    scope_is_stored,
    field_is_read,
    field_is_written,
    RefusedInAMethod(),
    RefusedInASubmodule(),
]
# With what is said of them.
REFUSED_WITHOUT_A_LINE: list[tuple[Any, str]] = [
    (scope_is_returned_in_a_tuple, "an autocast object that is used for anything but `with`"),
    (scope_is_an_argument, "an autocast object that was not made in the scripted code around it"),
]


@pytest.mark.parametrize(
    "refused",
    [
        *REFUSED,
        scope_is_returned_in_a_tuple,
        pytest.param(
            scope_is_an_argument,
            marks=pytest.mark.xfail(
                strict=True, reason="an argument has no source range: a line near is shown"
            ),
        ),
    ],
    ids=name_of,
)
def test_a_refusal_underlines_a_line_of_the_user(refused: Any) -> None:
    what, _, source = refusal(refused).partition("\n\n")
    assert what.startswith("jit_amp: ")
    assert "\n\nInstead: " in source
    lines = source.splitlines()
    assert 'File "FILE", line N' in lines[0]
    (mark,) = (i for i, line in enumerate(lines) if line.endswith("~ <--- HERE"))
    shown = lines[mark - 1][lines[mark].index("~") :]
    assert any(word in shown for word in ("autocast(", "scope")), shown


@pytest.mark.parametrize(
    ("refused", "what"),
    [pytest.param(*case, id=name_of(case[0])) for case in REFUSED_WITHOUT_A_LINE],
)
def test_a_refusal_says_what_and_what_instead(refused: Any, what: str) -> None:
    text = refusal(refused)
    assert text.startswith(f"jit_amp: {what}")
    assert "torch.autocast(...)" in text.rpartition("Instead: ")[2]


def test_a_refusal_is_a_runtime_error_and_not_an_internal_one() -> None:
    assert issubclass(jit_amp.AutocastError, RuntimeError)
    for refused in (*REFUSED, *(function for function, _ in REFUSED_WITHOUT_A_LINE)):
        assert "INTERNAL ASSERT" not in refusal(refused)


def test_the_graph_of_a_refused_function_is_refused_with_the_same_text() -> None:
    with pytest.raises(jit_amp.AutocastError) as raised:
        jit_amp.lowered_graph(enabled_is_an_argument, ambient=("cpu",))
    with pytest.raises(jit_amp.AutocastError) as scripted:
        jit_amp.script(enabled_is_an_argument)
    assert str(raised.value) == str(scripted.value)


@pytest.mark.parametrize(
    "function",
    # Refused, and of those that PyTorch's own pass runs.
    [dtype_is_the_tensors, left_twice, field_is_written],
)
def test_a_refused_function_still_scripts_and_runs_plainly(function: Callable[..., Any]) -> None:
    x = torch.randn(3, 3)
    before = torch.jit.script(function)
    expected, graph = before(x), str(before.graph)
    state = autocast_state()
    refusal(function)
    assert autocast_state() == state
    after = torch.jit.script(function)
    assert str(before.graph) == str(after.graph) == graph
    for plain in (before, after):
        for _ in range(3):
            assert torch.equal(plain(x), expected)


# What is not a refusal, so that the tests above are about the runtime value and nothing else.


class EnabledIsFinal(nn.Module):
    on: Final[bool]

    def __init__(self) -> None:
        super().__init__()
        self.on = True

    def forward(self, x: Tensor):
        with torch.autocast("cpu", enabled=self.on):
            return x @ x


def branches_with_a_scope_each(x: Tensor, on: bool):
    if on:
        with torch.autocast("cpu"):
            return x @ x
    else:
        with torch.autocast("cpu", enabled=False):
            return x @ x


def test_what_the_refusals_advise_is_accepted() -> None:
    x = torch.randn(3, 3)
    assert jit_amp.script(EnabledIsFinal())(x).dtype == torch.bfloat16
    advised = jit_amp.script(branches_with_a_scope_each)
    assert [advised(x, on).dtype for on in (True, False)] == [torch.bfloat16, torch.float32]


# Arguments of jit_amp's own.


@pytest.mark.parametrize("ambient", [("tpu",), ("cpu", "gpu"), "tpu"])
def test_lowered_graph_names_an_unknown_ambient_device(ambient: Any) -> None:
    with pytest.raises(ValueError, match=r"ambient: .* is none of 'cpu', 'cuda'"):
        jit_amp.lowered_graph(branches_with_a_scope_each, ambient=ambient)


def test_lowered_graph_takes_one_ambient_device() -> None:
    one, several = (
        str(jit_amp.lowered_graph(branches_with_a_scope_each, ambient=given))
        for given in ("cpu", ("cpu",))
    )
    assert one == several


def test_lowered_graph_names_an_unknown_method() -> None:
    with pytest.raises(ValueError, match="method: 'backward' is none of 'forward'"):
        jit_amp.lowered_graph(EnabledIsFinal(), "backward")


# Graphs that no source gives: TorchScript IR, changed by hand.


def one_scope(x: Tensor):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return x @ x


def changed(change: Callable[[Any, Any], None]) -> Any:
    """The scripted function with its scope's constructor changed."""
    graph = torch.jit.script(one_scope).graph.copy()
    change(graph, graph.findNode("prim::CallMethod"))
    return torch._C._create_function_from_graph("one_scope", graph)


def with_argument(index: int, value: Any) -> Any:
    def change(graph: Any, init: Any) -> None:
        graph.setInsertPoint(init)
        init.replaceInput(index, graph.insertConstant(value))

    return changed(change)


def test_a_scope_that_is_constructed_twice_is_refused() -> None:
    def twice(graph: Any, init: Any) -> None:
        graph.createClone(init, lambda value: value).insertAfter(init)

    assert_expected_inline(
        refusal(changed(twice)),
        """\
jit_amp: an autocast object that is constructed twice, or on some paths only  [JA113]

  File "FILE", line N
def one_scope(x: Tensor):
    with torch.autocast("cpu", dtype=torch.bfloat16):
         ~~~~~~~~~~~~~~ <--- HERE
        return x @ x

Instead: `with torch.autocast(...)` where it is needed

More: jit-amp errors JA113, or docs/errors.md#ja113""",
    )


def test_arguments_of_other_types_are_refused() -> None:
    assert_expected_inline(
        refusal(with_argument(3, 1)).splitlines()[0],
        """jit_amp: autocast's `enabled` of type int, not bool  [JA102]""",
    )
    assert_expected_inline(
        refusal(with_argument(2, 999)).splitlines()[0],
        """jit_amp: autocast's `dtype` as the number 999  [JA103]""",
    )


def test_a_graph_that_pytorchs_passes_fail_on_is_refused() -> None:
    def mistyped(graph: Any, init: Any) -> None:
        graph.findNode("prim::Constant").output().setType(torch._C.ListType.ofInts())

    assert_expected_inline(
        refusal(changed(mistyped)),
        """\
jit_amp: PyTorch's own passes fail on this graph  [JA207]

  required keyword attribute 'value' is undefined

Instead: a graph that torch.jit.script or torch.jit.load made

More: jit-amp errors JA207, or docs/errors.md#ja207""",
    )


def device_is_no_string(x: Tensor):
    with torch.autocast(x.device, dtype=torch.bfloat16):
        return x @ x


def test_a_device_that_is_no_string_is_refused_with_its_line() -> None:
    assert_expected_inline(
        refusal(device_is_no_string),
        """\
jit_amp: `device_is_no_string`: arguments that torch.autocast does not take  [JA119]

Expected a value of type 'str' for argument 'device_type' but instead found type 'Device'.
:
  File "FILE", line N
def device_is_no_string(x: Tensor):
    with torch.autocast(x.device, dtype=torch.bfloat16):
         ~~~~~~~~~~~~~~ <--- HERE
        return x @ x

Instead: `torch.autocast(device_type, dtype, enabled, cache_enabled)`, with a string as `device_type`: `x.device.type` for `x.device`

More: jit-amp errors JA119, or docs/errors.md#ja119""",
    )


class RefusedAlone(nn.Module):
    """Fine where `forward` hands it a constant; a method, a property and a hook on their own."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)

    @torch.jit.export
    def helper(self, x: Tensor, on: bool):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=on):
            return self.linear(x)

    def forward(self, x: Tensor):
        return self.helper(x, True)


class CallsRefused(nn.Module):
    """Compiled by PyTorch: what it has entered is left when the callee refuses."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor, on: bool):
        with torch.no_grad():
            return self.inner.helper(x, on)


class WaitsForRefused(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor, on: bool):
        return torch.jit.wait(torch.jit.fork(self.inner.helper, x, on))


def test_a_refusal_at_a_call_is_an_autocast_error() -> None:
    """PyTorch's interpreter makes a RuntimeError of what leaves it."""
    module, x = RefusedAlone(), torch.randn(2, 3)
    scripted = jit_amp.script(module)
    caller = torch.jit.script(CallsRefused(scripted))
    texts = set()

    def call(function: Callable[..., Any]) -> None:
        try:
            function(x, False)
        except jit_amp.AutocastError as error:
            texts.add(str(error))
        else:
            pytest.fail("not refused")

    def in_a_thread(function: Callable[..., Any]) -> None:
        thread = threading.Thread(target=call, args=(function,))
        thread.start()
        thread.join()

    state = autocast_state()
    for function in (scripted.helper, caller):
        for _ in range(3):
            call(function)
            in_a_thread(function)
    assert torch.is_grad_enabled() and autocast_state() == state
    [text] = texts
    assert "[JA101]" in text and "Instead: " in text and "interpreter" not in text
    assert torch.equal(scripted(x), module(x))


def test_a_refusal_in_a_task_has_its_text() -> None:
    """PyTorch keeps no more of what a task of its own raises."""
    waits = torch.jit.script(WaitsForRefused(jit_amp.script(RefusedAlone())))
    with pytest.raises(RuntimeError, match=r"(?s)JA101.*Instead: "):
        waits(torch.randn(2, 3), False)


def test_what_a_program_raises_itself_is_what_pytorch_makes_of_it() -> None:
    def raised(script: Any) -> tuple[type, list[str]]:
        with pytest.raises(torch.jit.Error) as error:
            script(raises)(torch.ones(2, 2))
        return type(error.value), str(error.value).split()[-2:]

    assert raised(jit_amp.script) == raised(torch.jit.script)


def raises(x: Tensor) -> Tensor:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        if x.sum() > 0:
            raise ValueError("no")
        return x @ x


class TooLarge(nn.Module):
    """A weight without memory of its own, whose fold with the norm would need more than there is."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4)
        weight = torch.zeros(1, 1, 1, 1).expand(4, 2**40, 3, 3)
        self.conv.weight = nn.Parameter(weight, requires_grad=False)

    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.norm(self.conv(x))


def test_memory_that_runs_out_is_no_fault_of_the_graph() -> None:
    with pytest.raises(RuntimeError, match="can't allocate memory") as raised:
        jit_amp.freeze(TooLarge().eval())
    assert not isinstance(raised.value, jit_amp.AutocastError)
