"""lower: what autocast does is in the graph, by the entry state where a graph has no scopes."""

from __future__ import annotations

import pytest
import torch

from .ir import BOTH, CPU, CUDA, OFF, State, check, unchanged

BFLOAT16, FLOAT16, FLOAT32 = 15, 5, 6


CONSTANTS = {
    "%none": "NoneType = prim::Constant()",
    "%one": "int = prim::Constant[value=1]()",
    "%half": "float = prim::Constant[value=0.5]()",
    "%yes": "bool = prim::Constant[value=1]()",
}


def call(what: str, checks: str = "", inputs: str = "%x : Tensor", type_of: str = "Tensor") -> str:
    """A graph of one call, with the constants that it takes."""
    lines = [f"# CHECK{line}" for line in checks.splitlines()]
    lines += [f"{name} : {made}" for name, made in CONSTANTS.items() if name in what]
    body = "\n  ".join([*lines, f"%y : {type_of} = {what}"])
    return f"graph({inputs}):\n  {body}\n  return (%y)\n"


CAST = """\
-DAG: [[CPU:%[0-9]+]] : {cpu}
-DAG: [[CUDA:%[0-9]+]] : {cuda}
: [[X:%[0-9]+]] : Tensor = jit_amp::cast(%x, [[CPU]], [[CUDA]])
-NEXT: {call}
: return"""
NONE = "NoneType = prim::Constant()"


def dtype(number: int) -> str:
    return f"int = prim::Constant[value={number}]()"


@pytest.mark.parametrize(
    ("entry", "cpu", "cuda"),
    [
        (CPU, dtype(BFLOAT16), NONE),
        (CUDA, NONE, dtype(FLOAT16)),
        (BOTH, dtype(BFLOAT16), dtype(FLOAT16)),
    ],
    ids=["cpu", "cuda", "both"],
)
def test_lower(entry: State, cpu: str, cuda: str) -> None:
    """Each device has its target; one cast does for an operand that comes twice."""
    text = call("aten::mm(%x, %x)", CAST.format(cpu=cpu, cuda=cuda, call="aten::mm([[X]], [[X]])"))
    check("lower", text, entry=entry)


def test_fp32() -> None:
    """The scope's dtype does not matter."""
    text = call(
        "aten::mse_loss(%x, %x, %one)",
        CAST.format(cpu=dtype(FLOAT32), cuda=NONE, call="aten::mse_loss([[X]], [[X]],"),
    )
    check("lower", text, entry={"cpu": torch.float16})


def test_promote_on_cpu() -> None:
    """The widest of what is in the list decides, and the list is cast whole."""
    checks = """\
-DAG: [[TO:%[0-9]+]] : int = prim::Constant[value=15]
-DAG: [[CPU:%[0-9]+]] : str = prim::Constant[value="cpu"]
: [[W:%[0-9]+]] : int? = jit_amp::widest(%x, [[TO]], [[CPU]])
: [[X:%[0-9]+]] : Tensor[] = jit_amp::cast(%x, [[W]],
: aten::cat([[X]],"""
    text = call("aten::cat(%x, %one)", checks, "%x : Tensor[]")
    check("lower", text, entry=CPU)


def test_promote_on_cuda() -> None:
    """All tensors among the operands are compared, and each is cast."""
    checks = """\
: [[L:%[0-9]+]] : Tensor[] = prim::ListConstruct(%x, %z)
: [[W:%[0-9]+]] : int? = jit_amp::widest([[L]],
-DAG: [[X:%[0-9]+]] : Tensor = jit_amp::cast(%x, {{%[0-9]+}}, [[W]])
-DAG: [[Z:%[0-9]+]] : Tensor = jit_amp::cast(%z, {{%[0-9]+}}, [[W]])
: aten::atan2([[X]], [[Z]])"""
    text = call("aten::atan2(%x, %z)", checks, "%x : Tensor, %z : Tensor")
    check("lower", text, entry=CUDA)


@pytest.mark.parametrize(
    "what", ["aten::sum(%x, %none)", "aten::softmax(%x, %one, %none)", "aten::prod(%x, %none)"]
)
def test_float32_unless_given(what: str) -> None:
    """CUDA's autocast hands the operator a dtype, and does not cast its operand."""
    checks = """\
-NOT: jit_amp::cast
: [[D:%[0-9]+]] : int? = jit_amp::opt_dtype(%x,
-NEXT: (%x, {{.*}}[[D]])"""
    check("lower", call(what, checks), entry=CUDA)


def test_optional_operands() -> None:
    """A bias that may be None is cast by the operator for such."""
    checks = """\
: [[B:%[0-9]+]] : Tensor? = jit_amp::cast(%b,
: aten::linear({{.*}}, [[B]])"""
    text = call("aten::linear(%x, %x, %b)", checks, "%x : Tensor, %b : Tensor?")
    check("lower", text, entry=CPU)


def test_none_is_not_cast() -> None:
    """There is nothing to cast."""
    checks = ": jit_amp::cast(%x\n-NOT: jit_amp::cast\n: return"
    check("lower", call("aten::linear(%x, %x, %none)", checks), entry=CPU)


def test_numbers_are_not_cast() -> None:
    """Only tensors are."""
    checks = """\
: jit_amp::cast(%x
-NOT: jit_amp::cast
: aten::addmm"""
    text = call("aten::addmm(%x, %x, %x, %one, %one)", checks)
    check("lower", text, entry=CPU)


def test_in_blocks() -> None:
    """The state inside a branch or loop is that around it."""
    check(
        "lower",
        """
        graph(%x : Tensor, %n : int, %c : bool):
          %yes : bool = prim::Constant[value=1]()
          # CHECK: prim::If
          # CHECK: jit_amp::cast
          # CHECK: aten::mm
          %y : Tensor = prim::If(%c)
            block0():
              %a : Tensor = aten::mm(%x, %x)
              -> (%a)
            block1():
              -> (%x)
          # CHECK: prim::Loop
          # CHECK: jit_amp::cast
          # CHECK: aten::mm
          prim::Loop(%n, %yes)
            block0(%i : int):
              %b : Tensor = aten::mm(%x, %x)
              -> (%yes)
          return (%y)
        """,
        entry=CPU,
    )


def test_in_a_task() -> None:
    """The task's thread has another autocast state: the ambient dtype is handed in."""
    check(
        "lower",
        """
graph(%x : Tensor):
  # CHECK: [[D:%[0-9]+]] : int = jit_amp::ambient_dtype(
  # CHECK: prim::fork_0(%x, [[D]])
  # CHECK: prim::fork_0 = graph
  # CHECK-NOT: jit_amp::ambient_dtype
  # CHECK: jit_amp::cast
  %f : Future(Tensor) = prim::fork(%x)
  %r : Tensor = aten::wait(%f)
  return (%r)
with graph(%x : Tensor):
  %y : Tensor = aten::mm(%x, %x)
  return (%y)
""",
        entry={"cpu": None},  # type: ignore[dict-item]
    )


def test_stock() -> None:
    """The target is one that PyTorch's passes cannot fold: legalize decides."""
    checks = """\
: [[D:%[0-9]+]] : int = jit_amp::deferred[value=15]()
: jit_amp::cast(%x, [[D]],"""
    check("lower", call("aten::mm(%x, %x)", checks), entry=CPU, stock=True)


def test_opaque() -> None:
    """What calls others that are cast runs inside the dispatcher's own autocast."""
    checks = """\
: [[ON:%[0-9]+]] : bool = prim::Constant[value=1]
: [[Y:%[0-9]+]] : Tensor = jit_amp::scoped_0[devices=["cpu"]]([[ON]], {{%[0-9]+}}, %x)
-NEXT: return ([[Y]])
: jit_amp::scoped_0 = graph
: aten::matrix_exp"""
    check("lower", call("aten::matrix_exp(%x)", checks), entry=CPU)


def test_unknown() -> None:
    """An operator that has no schema may write or give a view: no pass may move or merge it."""
    checks = ': jit_amp::scoped_effect_0[devices=["cpu"]]\n: some::operator'
    check("lower", call("some::operator(%x)", checks), entry=CPU)


@pytest.mark.parametrize(
    ("question", "type_of", "entry", "answer"),
    [
        ("aten::is_autocast_cpu_enabled()", "bool", CPU, 1),
        ("aten::is_autocast_cpu_enabled()", "bool", CUDA, 0),
        ("aten::is_autocast_cpu_enabled()", "bool", OFF, 0),
        ("aten::is_autocast_enabled()", "bool", CPU, 0),
        ("aten::is_autocast_enabled()", "bool", CUDA, 1),
        ("aten::get_autocast_cpu_dtype()", "int", CPU, BFLOAT16),
        ("aten::get_autocast_cpu_dtype()", "int", {"cpu": torch.float16}, FLOAT16),
        ("aten::get_autocast_gpu_dtype()", "int", CUDA, FLOAT16),
    ],
)
def test_questions(question: str, type_of: str, entry: State, answer: int) -> None:
    """They are about the state where they stand, and a call runs with the ambient one suspended."""
    checks = f"""\
-NOT: autocast
: [[A:%[0-9]+]] : {type_of} = prim::Constant[value={answer}]
: return ([[A]])"""
    check("lower", call(question, checks, "", type_of), entry=entry)


@pytest.mark.parametrize("name", ["cpu", "cuda"])
def test_question_by_name(name: str) -> None:
    """The device that is asked about is an operand."""
    text = f"""
    graph():
      %d : str = prim::Constant[value="{name}"]()
      # CHECK: [[A:%[0-9]+]] : bool = prim::Constant[value={int(name == "cpu")}]
      # CHECK: return ([[A]])
      %y : bool = aten::is_autocast_enabled(%d)
      return (%y)
    """
    check("lower", text, entry=CPU)


def test_question_about_any_device() -> None:
    """The name is known at run time only: the dispatcher answers, in the state."""
    checks = ": jit_amp::scoped_effect_0[\n: aten::get_autocast_dtype"
    text = call("aten::get_autocast_dtype(%d)", checks, "%d : str", "int")
    check("lower", text, entry=CPU)


@pytest.mark.parametrize(
    ("what", "entry"),
    [
        ("aten::relu(%x)", BOTH),  # autocast has nothing to say of it
        ("aten::add(%x, %x, %one)", BOTH),
        ("aten::mm(%x, %x)", OFF),
        ("aten::softmax(%x, %one, %none)", CPU),  # CUDA's list, not CPU's
        ("aten::sum(%x, %none)", CPU),
        ("aten::atan2(%x, %x)", CPU),
        ("aten::dropout(%x, %half, %yes)", BOTH),
        ("aten::relu_(%x)", BOTH),  # in place: the tensor's dtype stays
        ("aten::add_(%x, %x, %one)", BOTH),
        ("aten::addmm_(%x, %x, %x, %one, %one)", BOTH),
        ("aten::detach(%x)", BOTH),
        ("aten::to(%x, %one, %yes, %yes, %none)", BOTH),  # the author's own cast
        ("jit_amp::carried(%x)", BOTH),  # marks are not operators of the program
    ],
)
def test_untouched(what: str, entry: State) -> None:
    """Autocast leaves it alone, and so do we."""
    unchanged("lower", call(what), entry=entry)


@pytest.mark.parametrize("stock", [False, True])
def test_no_cast_of_what_has_no_tensor(stock: bool) -> None:
    """Arithmetic of numbers and containers of tensors is the language's own."""
    text = """
    graph(%x : Tensor, %n : int):
      %l : Tensor[] = prim::ListConstruct(%x, %x)
      %m : int = aten::add(%n, %n)
      %t : (Tensor[], int) = prim::TupleConstruct(%l, %m)
      return (%t)
    """
    unchanged("lower", text, entry=BOTH, stock=stock)


def test_in_place_form_of_a_listed_operator() -> None:
    """`addmm` is cast and `addmm_` is not: a policy is one exact overload's."""
    unchanged("lower", call("aten::addmm_(%x, %x, %x, %one, %one)"), entry=CPU)
    check("lower", call("aten::addmm(%x, %x, %x, %one, %one)", ": jit_amp::cast"), entry=CPU)
