"""What a report advises at single lines."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from jit_amp._explain.records import REDUCED, CompiledCast, Hint, Row


def hints_of_casts(casts: Iterable[CompiledCast]) -> Iterator[Hint]:
    for place in dict.fromkeys(each.users[0] for each in casts if each.at_run_time):
        yield Hint(
            place,
            "whether something is cast here is asked at each call: freeze with example_inputs, "
            "which tell the dtype",
        )
    for each in casts:
        if each.in_loop and not each.at_run_time:
            yield Hint(
                each.users[0],
                "a cast in a loop, which changes in it or is written to: it is made in each round",
            )


def hints_of(rows: Iterable[Row]) -> Iterator[Hint]:
    for row in rows:
        there_and_back = [c for c in row.casts if c.source in REDUCED and c.target == "float32"]
        if there_and_back and row.calls > 1:
            yield Hint(
                row.line,
                f"{row.operator} casts {there_and_back[0].source} to float32 in a loop, and what "
                "follows casts it back: keep one dtype in the loop",
            )
        if row.policy == "fp32" and any(c.source in REDUCED for c in row.casts):
            yield Hint(
                row.line,
                f"{row.operator} runs in float32 only because autocast lists it: if a reduced "
                "dtype is enough, put it into `with torch.autocast(..., enabled=False):`",
            )
        if row.policy == "opaque" and row.casts == () and not row.operator.startswith("aten::"):
            yield Hint(
                row.line,
                f"{row.operator} is unknown to autocast's lists: "
                f'jit_amp.policy.register("{row.operator}", ...) says what is to be done to it, '
                "and lets it be frozen",
            )
        if row.numerics and row.numerics.overflows:
            yield Hint(
                row.line,
                f"{row.numerics.overflows} results of {row.operator} overflow {row.results[0]}, "
                "and are finite in float64",
            )


def hints_of_gradients(rows: Sequence[Row]) -> Iterator[Hint]:
    overflowing = [row for row in rows if row.gradient and row.gradient.overflow_scale]
    if overflowing:  # gradients come about from the last line to the first
        least = min(row.gradient.overflow_scale or 0.0 for row in overflowing if row.gradient)
        for row in reversed(overflowing):
            if row.gradient and row.gradient.overflow_scale == least:
                yield Hint(
                    row.line,
                    f"gradients overflow {row.gradient.dtype} here first, with a loss scale of "
                    f"{least:.0f}: torch.amp.GradScaler, which begins with 65536, skips such steps "
                    "and lowers its scale",
                )
                break
    for row in rows:
        if row.gradient and row.gradient.underflows > row.gradient.elements / 10:
            yield Hint(
                row.line,
                f"{row.gradient.underflows / row.gradient.elements:.0%} of the gradients of "
                f"{row.operator} underflow {row.gradient.dtype} without a loss scale: "
                "torch.amp.GradScaler chooses one",
            )
