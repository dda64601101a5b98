"""Autocast scopes."""

from __future__ import annotations

from collections.abc import Sequence

from .writes import Writes


class Scopes(Writes):
    """Autocast scopes."""

    def scope_expression(self) -> tuple[str, str]:
        """An autocast object's constructor, and the state that it makes."""
        rng, state = self.rng, self.state
        dtype = rng.choice(self.shared.dtypes)
        default = "bfloat16" if len(self.shared.dtypes) == 1 else "on"
        if state in ("bfloat16", "float16"):
            default = state
        torch_dtype = f"torch.{dtype}"
        choices = [
            (5.0, f'torch.autocast("cpu", dtype={torch_dtype})', dtype),
            (1.5, 'torch.autocast("cpu")', default),
            (2.0, 'torch.autocast("cpu", enabled=False)', "off"),
            (0.5, f'torch.autocast(dtype={torch_dtype}, cache_enabled=False, device_type="cpu")',
             dtype),
            (0.3, f'torch.autocast("cpu", {torch_dtype}, False)', "off"),
            (0.3, f'torch.amp.autocast("cpu", dtype={torch_dtype}, enabled=not False)', dtype),
            (0.2, f"torch.cpu.amp.autocast(dtype={torch_dtype})", dtype),
            (0.4, 'torch.autocast("cuda")', state),
            (0.2, 'torch.autocast("cuda", dtype=torch.bfloat16, enabled=False)', state),
            (0.2, 'torch.autocast("cpu", dtype=torch.float64)', "off"),
        ]  # fmt: skip
        tensors = [v.name for v in self.of_kind("m")]
        text = f"torch.autocast({rng.choice(tensors)}.device.type, dtype={torch_dtype})"
        choices.append((0.15, text, dtype))
        for name, value in self.members.flags.items() if self.members else ():
            made = dtype if value else "off"
            text = f'torch.autocast("cpu", dtype={torch_dtype}, enabled=self.{name})'
            choices.append((1.0, text, made))
        _, text, made = rng.choices(choices, [weight for weight, _, _ in choices])[0]
        features = {
            "cuda": "scope for cuda",
            "self.": "scope enabled by an attribute",
            "enabled=False": "disabled scope",
            "False)": "disabled scope",
            ".device.type": "scope for a tensor's device",
            "float64": "scope of an unsupported dtype",
        }
        self.shared.features.update(f for part, f in features.items() if part in text)
        if text == 'torch.autocast("cpu")':
            self.feature("scope without a dtype")
        if f"dtype={torch_dtype}" in text:
            self.feature(f"scope of {dtype}")
        return text, made

    def scope(self) -> None:
        """`with`, or the same by hand."""
        if self.returned or self.jumped:
            return self.operation()
        before = self.state
        if self.withs:
            self.feature("nested scopes")
        closed = [name for name in self.scopes if name not in self.open]
        entered: list[str] = []
        items: list[str] = []
        named: dict[str, str] = {}
        for _ in range(2 if self.chance(0.1) else 1):
            if closed and self.chance(0.5):
                name = closed.pop(self.rng.randrange(len(closed)))
                text, made = name, self.scopes[name]
                entered.append(name)
                self.feature("scope object entered")
            else:
                text, made = self.scope_expression()
            if self.chance(0.12):
                alias = self.shared.name("s")
                named[alias] = made
                text = f"{text} as {alias}"
                self.feature("scope with a name")
                if entered and text.startswith(entered[-1]):
                    entered[-1:] = []  # one object, two names: the first is not used again
                    self.scopes.pop(text.split(" as ")[0])
            items.append(text)
            self.state = made
        if not self.shared.gradients and not self.shared.forks and self.chance(0.1):
            items.insert(self.rng.randrange(len(items) + 1), "torch.no_grad()")
            self.feature("no_grad")
        if len(items) == 1 and not named and self.chance(0.07):
            self.by_hand(items[0], entered)
        else:
            self.emit(f"with {', '.join(items)}:")
            self.inside(entered)
        self.state = before
        self.scopes.update(named)

    def inside(self, entered: Sequence[str]) -> None:
        """The block of a `with`. What it makes is there after it."""
        self.open.update(entered)
        self.depth += 1
        self.withs += 1
        written = len(self.lines)
        self.body(self.rng.randint(1, 4))
        if len(self.lines) == written:
            self.operation()
        self.withs -= 1
        self.depth -= 1
        self.open.difference_update(entered)

    def by_hand(self, text: str, entered: Sequence[str]) -> None:
        name = text
        if not entered:
            name = self.shared.name("s")
            self.emit(f"{name} = {text}")
        self.feature("scope entered by hand")
        self.emit(f"{name}.__enter__()")
        self.open.update(entered)
        self.withs += 1
        for _ in range(self.rng.randint(1, 2)):
            self.operation()
        self.withs -= 1
        self.open.difference_update(entered)
        self.emit(f"{name}.__exit__(None, None, None)")

    def scope_object(self) -> None:
        if self.returned or self.jumped:
            return self.operation()
        text, made = self.scope_expression()
        name = self.shared.name("s")
        self.emit(f"{name} = {text}")
        self.scopes[name] = made
        self.feature("scope object")
        self.left += 1
        self.scope()
