"""The tensors of a TorchScript program, in an ``nn.Module`` that torch.export can look into."""

from __future__ import annotations

import enum
import re
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.jit import ScriptModule
from torch.jit._script import RecursiveScriptClass
from torch.jit._state import _get_script_class
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils import _pytree as pytree

from jit_amp import _C
from jit_amp._explain.graph import place_of


def _members(kind: Any, of: Any) -> list[tuple[str, Any]]:
    members: list[tuple[str, Any]] = kind(of).items()
    return members


def _memory_of(tensor: Tensor) -> Any:
    weakly: Any = StorageWeakRef  # has no types
    return weakly(tensor.untyped_storage())


def graph_called(node: torch._C.Node) -> torch._C.Graph | None:
    """The graph of a task, of a method that no call shows, or of an operator in its scope."""
    if node.kind() in ("prim::Enter", "prim::Exit"):
        return _C.hidden_graph(node)
    return node.g("Subgraph") if node.hasAttribute("Subgraph") else None


def is_object(value: Any) -> bool:
    """Whether it is of a TorchScript class, in whatever form Python has it."""
    if isinstance(value, torch._C.ScriptObject):
        name = str(value._type().qualified_name())
        return not name.startswith("__torch__.torch.classes.")  # of a library in C++
    if isinstance(value, enum.Enum):  # whose class is known too
        return False
    is_known = _get_script_class(type(value)) is not None  # type: ignore[no-untyped-call]
    return is_known or isinstance(value, RecursiveScriptClass)


class Holder:
    """Parameters and buffers by the names that they have in the module, the same tensors; shared
    ones are one. What else is a tensor, an attribute, in one that is a list, a dictionary or an
    object, or a constant of the graph, is a buffer that is in no ``state_dict``.

    Args:
        root: gets them all.
        module: None for a function.
        graph: what is run.
        kept: the names in the module's ``state_dict``.
    """

    def __init__(
        self,
        root: nn.Module,
        module: ScriptModule | None,
        graph: torch._C.Graph,
        kept: set[str] | None = None,
    ) -> None:
        self.root, self.module = root, module
        self._modules: dict[str, Any] = {}
        self._not_kept: list[tuple[nn.Module, str, str, Any]] = []
        self._held: dict[int, Tensor] = {}  # by the tensor that they are, of the program
        self._first: dict[int, tuple[nn.Module, str]] = {}  # where they are held
        self._tensors: dict[str, tuple[nn.Module, str]] = {}
        self._constants: dict[int, str] = {}
        self._assigned: dict[str, Tensor] = {}
        self._objects: dict[str, Any] = {}
        self._alive: list[Any] = []  # what the keys of both are numbers of
        self.fields: set[str] = set()  # names of attributes that the graph reads
        if module is not None:
            self._take(module._c, self.root, "", kept)
            for into, name, path, buffer in self._not_kept:
                self._register(into, name, path, buffer, "attribute")
            self._take_attributes(graph)

    def _take(self, own: Any, into: nn.Module, path: str, kept: set[str] | None) -> None:
        self._modules[path] = own
        self._alive.append(own)
        start = f"{path}." if path else ""
        for name, parameter in _members(torch._C.ParameterDict, own):
            self._register(into, name, start + name, parameter, "parameter")
        for name, buffer in _members(torch._C.BufferDict, own):
            if kept is None or start + name in kept:
                self._register(into, name, start + name, buffer, "buffer")
            else:
                self._not_kept.append((into, name, start + name, buffer))
        for name, inner in _members(torch._C.ModuleDict, own):
            child = nn.Module()
            into.add_module(name, child)
            self._take(inner, child, start + name, kept)

    def _register(self, into: nn.Module, name: str, path: str, tensor: Any, kind: str) -> None:
        if not isinstance(tensor, Tensor):
            return
        self._alive.append(tensor)
        held = self._held.get(tensor._cdata)
        if held is not None and kind == "attribute":  # another name of what a state_dict may have
            self._tensors[path] = self._first[tensor._cdata]
            return
        self._first.setdefault(tensor._cdata, (into, name))
        if held is None:
            held = tensor
            if kind == "parameter" and not isinstance(tensor, nn.Parameter):
                held = nn.Parameter(tensor, requires_grad=tensor.requires_grad)
            elif kind != "parameter":
                held = tensor.detach() if tensor.requires_grad else tensor
            self._held[tensor._cdata] = held
        if kind == "parameter":
            into.register_parameter(name, held)  # type: ignore[arg-type]
        else:
            into.register_buffer(name, held, persistent=kind == "buffer")
        self._tensors[path] = into, name

    def _take_attributes(self, graph: torch._C.Graph) -> None:
        """Tensors that the graph reads of the module, and that are no parameters or buffers."""

        def walk(block: Any, paths: dict[int, str]) -> None:
            for node in block.nodes():
                if node.kind() == "prim::fork":
                    inner = node.g("Subgraph")
                    known = zip(inner.inputs(), node.inputs(), strict=True)
                    given = {a.unique(): paths[b.unique()] for a, b in known if b.unique() in paths}
                    walk(inner, given)
                for inner in node.blocks():
                    walk(inner, paths)
                if node.kind() not in ("prim::GetAttr", "prim::SetAttr"):
                    continue
                owner = paths.get(next(node.inputs()).unique())
                if owner is None:
                    continue
                name = node.s("name")
                path = f"{owner}.{name}" if owner else name
                if path in self._modules:
                    paths[node.output().unique()] = path
                elif path not in self._tensors:
                    value = self.attribute(path)
                    if is_object(value) and node.kind() == "prim::GetAttr":
                        self._objects[path] = value
                        paths[node.output().unique()] = path
                    elif owner in self._objects or isinstance(value, (list, tuple, dict)):
                        self._hold_inside(value, path)
                    else:
                        self._register(self._container(owner), name, path, value, "attribute")

        self._find_fields(graph)
        walk(graph, {next(graph.inputs()).unique(): ""})

    def _find_fields(self, block: Any) -> None:
        for node in block.nodes():
            if node.kind() == "prim::GetAttr":
                self.fields.add(node.s("name"))
            called = graph_called(node)
            for inner in (*node.blocks(), *([] if called is None else [called])):
                self._find_fields(inner)

    def _container(self, path: str) -> nn.Module:
        return self.root.get_submodule(path)

    def _hold_inside(self, value: Any, path: str) -> None:
        """A program may write to tensors in a list, a dictionary or an object, too."""
        seen: set[int] = set()
        ahead = pytree.tree_leaves(value)
        while ahead:
            each = ahead.pop(0)
            if isinstance(each, Tensor) and each._cdata not in self._held:
                self.hold(each, path)
            elif is_object(each) and id(each) not in seen:
                seen.add(id(each))
                self._alive.append(each)
                found = (getattr(each, name) for name in self.fields if hasattr(each, name))
                ahead += pytree.tree_leaves(list(found))

    def hold(self, tensor: Tensor, name: str) -> str:
        """Takes a constant of the graph; returns what to ask ``tensor`` for."""
        if known := self._constants.get(tensor._cdata):
            return known
        name = re.sub(r"\W", "_", name.removeprefix("self.")).strip("_")
        name = f"constant_{name}" if not name or name[0].isdigit() else name
        free = name
        count = 0
        own = self._modules.get("")
        while hasattr(self.root, free) or (own is not None and own.hasattr(free)):
            count += 1
            free = f"{name}_{count}"
        self._register(self.root, free, free, tensor, "attribute")
        self._constants[tensor._cdata] = free
        return free

    def is_module(self, path: str) -> bool:
        return path in self._modules

    def is_tensor(self, path: str) -> bool:
        return path in self._tensors

    def tensor(self, path: str) -> Tensor:
        """What stands for the tensor while torch.export looks on."""
        if path in self._assigned:
            return self._assigned[path]
        into, name = self._tensors[path]
        found: Tensor = getattr(into, name)
        return found

    def is_shared(self, tensor: Tensor) -> bool:
        """Whether more than one parameter, buffer or attribute is in the memory of the tensor."""
        if tensor.layout != torch.strided:
            return False
        memory = _memory_of(tensor)
        held = [getattr(into, name) for into, name in self._tensors.values()]
        return [_memory_of(x) == memory for x in held if x.layout == torch.strided].count(True) > 1

    def assign(self, path: str, value: Tensor) -> None:
        self._assigned[path] = value

    def begin(self) -> None:
        """Prepares for a call of the program."""
        self._assigned.clear()

    def end(self, results: Any) -> Any:
        """Writes what was assigned into the buffers: torch.export loses what is assigned to a
        buffer of a submodule. What the program returns of a buffer as it was is a copy."""
        assigned, self._assigned = self._assigned, {}
        buffers = {path: self.tensor(path) for path in assigned}
        memory = {_memory_of(each) for each in buffers.values()}

        def kept(value: Any) -> Any:
            is_strided = isinstance(value, Tensor) and value.layout == torch.strided
            if is_strided and _memory_of(value) in memory:
                return value.clone()
            return value

        if assigned:
            results, values = pytree.tree_map(kept, (results, list(assigned.values())))
            for buffer, value in zip(buffers.values(), values, strict=True):
                buffer.detach().copy_(value)
        return results

    def attribute(self, path: str) -> Any:
        owner, _, name = path.rpartition(".")
        if owner in self._objects:
            return getattr(self._objects[owner], name, None)
        module = self._modules[owner]
        return module.getattr(name) if module.hasattr(name) else None

    def standing_for(self, tensor: Tensor) -> Tensor:
        """What stands for a tensor of a list, a dictionary or an object."""
        names = (*self._names_of(tensor), *filter(None, [self._constants.get(tensor._cdata)]))
        return self.tensor(names[0]) if names else tensor

    def _names_of(self, tensor: Tensor) -> Iterator[str]:
        if not hasattr(self, "_paths"):
            self._paths: dict[int, list[str]] = {}
            for path, owner in self._modules.items():
                for kind in (torch._C.ParameterDict, torch._C.BufferDict):
                    for name, each in _members(kind, owner):
                        if isinstance(each, Tensor):
                            full = f"{path}.{name}" if path else name
                            self._paths.setdefault(each._cdata, []).append(full)
                            self._alive.append(each)
        yield from self._paths.get(tensor._cdata, ())

    def trace_of(self, node: torch._C.Node) -> str:
        """The line of the program, as a traceback has it."""
        place = place_of(node)
        if place is None:
            return ""
        function = place.function or "forward"
        return f'  File "{place.file}", line {place.line}, in {function}\n    {place.text}\n'
