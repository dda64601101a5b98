"""What matters in a report: its numbers, a sentence, and one change to make."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from jit_amp._explain.records import REDUCED, Operand, Place, Records, Row, Scope

_FEW_BYTES = 5e4  # what is printed as 0.0 MB
_LITTLE = 0.01  # a share of the time that is not worth a change
LONG = 200  # characters of an error in a sentence


@dataclass(frozen=True)
class Summary:
    """A report's numbers. ``share`` is that of each dtype, of the time; of the FLOPs where no time
    was taken; of the operators where there are none: ``share_of`` says which."""

    operators: int
    calls: int
    milliseconds: float
    share_of: str  # "time", "FLOPs" or "operators"
    share: dict[str, float]
    casts: int
    cast_megabytes: float
    cast_milliseconds: float
    overflows: int
    underflows: int
    nans: int
    error: float  # the largest of one operator's own
    total_error: float
    loss_scale: float  # the smallest at which a gradient overflows; infinite: none of those tried
    gradient_underflows: int


@dataclass(frozen=True)
class Advice:
    """One change: what to do, where, as code to paste, and what it gains."""

    text: str
    code: str
    gain: str
    place: Place | None = None


def computed(row: Row) -> bool:
    """Whether a row stands for computing with floating-point numbers."""
    return bool(row.computed_in)


def summary(report: Records) -> Summary:
    """See ``Summary``."""
    rows = report.rows
    seconds = sum(row.seconds for row in rows)
    flops = sum(row.flops for row in rows)
    weights: list[tuple[str, Callable[[Row], float]]] = [
        ("time", lambda row: row.seconds),
        ("FLOPs", lambda row: row.flops),
        ("operators", lambda row: row.calls),
    ]
    share_of, weight = weights[0 if seconds else 1 if flops else 2]
    share: dict[str, float] = defaultdict(float)
    for row in rows:
        share[row.computed_in or "no floating-point dtype"] += weight(row)
    whole = sum(share.values()) or 1
    numbers = [row.numerics for row in rows if row.numerics]
    gradients = [row.gradient for row in rows if row.gradient]
    return Summary(
        len(rows),
        sum(row.calls for row in rows),
        1e3 * seconds,
        share_of,
        {k: v / whole for k, v in sorted(share.items(), key=lambda each: -each[1]) if v},
        sum(row.cast_count for row in rows),
        sum(row.cast_bytes for row in rows) / 1e6,
        1e3 * sum(row.cast_seconds for row in rows),
        sum(n.overflows for n in numbers),
        sum(n.underflows for n in numbers),
        sum(n.nans for n in numbers),
        max((n.introduced for n in numbers), default=0.0),
        max((n.total for n in numbers), default=0.0),
        min((g.overflow_scale or math.inf for g in gradients), default=math.inf),
        sum(g.underflows for g in gradients),
    )


def verdict(report: Records) -> str:
    """See ``Report.verdict``."""
    if report.refusal and not report.rows:
        return "jit_amp refuses this program."
    sentences = [_on_stop(report)] if report.error else []
    found = summary(report)
    if not found.share:
        return " ".join([*sentences, "No operator ran."])
    sentences.append(_on_precision(report, found))
    overflow = _first(report.rows, lambda row: row.numerics and row.numerics.overflows)
    if overflow:
        at = overflow[0].line
        of_line = sum(r.numerics.overflows for r in overflow if r.line == at and r.numerics)
        sentences.append(f"{_values(of_line, 'overflow')} at {at}: keep that line in float32.")
    elif report.numerics and found.nans:
        nan = _first(report.rows, lambda row: row.numerics and row.numerics.nans)
        sentences.append(f"{_values(found.nans, 'are NaN')}, first at {nan[0].line}.")
    elif report.numerics:
        worst = max(report.rows, key=lambda r: r.numerics.introduced if r.numerics else 0.0)
        sentences.append(
            f"{_on_infinities(report)}; the largest error of one operator is {found.error:.1e}, "
            f"at {worst.line}."
        )
    if report.gradients:
        sentences.append(_on_gradients(report, found))
    return " ".join(sentences)


def _values(count: int, do: str) -> str:
    """How many values do something, as ``2 values overflow``."""
    if count != 1:
        return f"{count:,} values {do}"
    verb, _, rest = do.partition(" ")
    return f"1 value {'is' if verb == 'are' else verb + 's'} {rest}".rstrip()


def _on_infinities(report: Records) -> str:
    """What is said of infinite values where none is finite in float64."""
    infinite = _first(report.rows, lambda row: row.numerics and row.numerics.infinities)
    if not infinite:
        return "Nothing overflows"
    count = sum(row.numerics.infinities for row in infinite if row.numerics)
    told = _values(count, "are infinite")
    return f"{told}, in float64 too, first at {infinite[0].line}"


def _on_precision(report: Records, found: Summary) -> str:
    if not any(dtype in REDUCED or dtype == "mixed" for dtype in found.share):
        main = next(iter(found.share))
        takes = f" ({found.milliseconds:.1f} ms)" if found.milliseconds else ""
        why = "" if any(_is_on(row) for row in report.rows) else f": {_why_off(report.rows)}"
        return f"Everything runs in {main}{takes}{why}."
    reduced = {dtype: share for dtype, share in found.share.items() if dtype in REDUCED}
    parts = [f"{share:.0%} of the {found.share_of}" for share in reduced.values()]
    if not reduced:
        parts, reduced = [f"{found.share['mixed']:.0%} of the {found.share_of}"], {"mixed": 0.0}
    each = " and ".join(f"{part} in {dtype}" for part, dtype in zip(parts, reduced, strict=True))
    each = each.replace(" in ", " runs in " if found.share_of == "time" else " are in ", 1)
    each = each.replace("runs in mixed", "runs in mixed dtypes").replace(
        "are in mixed", "are in mixed dtypes"
    )
    if found.milliseconds:
        cost = found.cast_milliseconds / found.milliseconds
        casts = f"autocast's casts cost {cost:.0%} ({found.cast_milliseconds:.1f} ms)"
        return f"{each} ({found.milliseconds:.1f} ms in all); {casts}."
    return f"{each}; autocast makes {found.casts:,} casts ({found.cast_megabytes:.1f} MB)."


def _on_stop(report: Records) -> str:
    """Where the program raised, with the first line of what, and what the operator was given."""
    stop, error = report.stop, report.error.splitlines()[0]
    error = error if len(error) <= LONG else f"{error[:LONG]}…"
    at = stop.place if stop and stop.place.line else None
    sentence = f"The program stops at {at}: {error}" if at else f"The program stops: {error}"
    sentence = sentence if sentence.endswith((".", "!", "?", "…")) else sentence + "."
    if stop and stop.operator and stop.tensors:
        given = [_operand(operand) for operand in stop.tensors[:3]]
        named = " and ".join(filter(None, [", ".join(given[:-1]), given[-1]]))
        sentence += f" {stop.operator.removeprefix('aten::')} was given {named}."
    return sentence


def _operand(operand: Operand) -> str:
    come_from = f" of {operand.place}" if operand.place else ""
    come_from = come_from or (f" ({operand.origin})" if operand.origin else "")
    return f"{operand.dtype}{come_from}"


def _switching_off(row: Row) -> list[Scope]:
    """The scopes of the program that have autocast switched off for a row."""
    if any(scope.enabled or scope.is_elsewhere for scope in row.scopes):
        return []
    return [scope for scope in row.scopes if scope.place]


def _why_off(rows: Sequence[Row]) -> str:
    """Why nothing runs in a reduced dtype, where no autocast is on."""
    rows = [row for row in rows if computed(row)] or list(rows)
    there = [row for row in rows if row.elsewhere]
    if there:
        return _on_elsewhere(rows, there)
    off = [row for row in rows if _switching_off(row)]
    places = list(dict.fromkeys(str(s.place) for row in off for s in _switching_off(row)))
    if not off:
        return "no autocast is on"
    named = ", ".join(places[:3]) + (f" and {len(places) - 3} more" if len(places) > 3 else "")
    switched = f"autocast is switched off at {named}"
    if len(off) == len(rows):
        return switched
    return f"for {len(off)} of {len(rows)} operators {switched}, and around the others none is on"


def _on_elsewhere(rows: Sequence[Row], there: Sequence[Row]) -> str:
    """What would be on a machine that has the device of the scopes."""
    device = next(row.elsewhere.device for row in there if row.elsewhere)
    flops = sum(row.flops for row in rows)
    share: dict[str, float] = defaultdict(float)
    for row in rows:
        dtype = row.elsewhere.computed_in if row.elsewhere else row.computed_in
        share[dtype or "no floating-point dtype"] += row.flops if flops else row.calls
    whole = sum(share.values()) or 1
    dtype, part = max(
        ((dtype, part) for dtype, part in share.items() if dtype in REDUCED),
        key=lambda each: each[1],
        default=("", 0.0),
    )
    of = "FLOPs" if flops else "operators"
    would = f"; there {part / whole:.0%} of the {of} would be in {dtype}" if dtype else ""
    return f"autocast is on for {device}, which this machine does not have{would}"


def _on_gradients(report: Records, found: Summary) -> str:
    if found.loss_scale < math.inf:
        rows = [row for row in report.rows if row.gradient]
        at = next(r for r in reversed(rows) if r.gradient.overflow_scale == found.loss_scale)  # type: ignore[union-attr]
        return (
            f"Gradients overflow from a loss scale of {found.loss_scale:,.0f} on, first at "
            f"{at.line}."
        )
    if found.gradient_underflows:
        return (
            f"{found.gradient_underflows:,} entries of gradients are zero without a loss scale: "
            "use torch.amp.GradScaler."
        )
    return "Gradients neither overflow nor underflow, with loss scales from 1 to 2**24."


def _is_on(row: Row) -> bool:
    is_here = not (row.elsewhere and row.elsewhere.policy)
    return is_here and any(scope.enabled for scope in row.scopes)


def _first(rows: Sequence[Row], has: Callable[[Row], Any]) -> list[Row]:
    """Returns the rows that have something, in their order; none where no row has it."""
    return [row for row in rows if has(row)]


def advice(report: Records) -> Advice | None:
    """See ``Report.advice``."""
    if not report.rows or report.error:
        return None
    rows = report.rows
    if overflow := _first(rows, lambda row: row.numerics and row.numerics.overflows):
        return _against_overflow(overflow)
    if not any(_is_on(row) for row in rows):
        if any(row.elsewhere for row in rows):
            return None
        return _for_no_scope(report, [row for row in rows if not _switching_off(row)])
    found = [each for each in (_for_weights(report), _for_float32(report)) if each]
    best = max(found, key=lambda each: each[0], default=None)
    return best[1] if best and best[0] > _LITTLE else None


def _against_overflow(rows: list[Row]) -> Advice:
    first = rows[0]
    at = first.line
    count = sum(r.numerics.overflows for r in rows if r.line == at and r.numerics)
    device = first.devices[0] if first.devices else "cpu"
    text = at.text
    return Advice(
        f"keep {at} in float32",
        f'with torch.autocast("{device}", enabled=False):  # .float() on what goes in\n    {text}',
        _values(count, "stay finite"),
        at,
    )


def _for_no_scope(report: Records, free: Sequence[Row]) -> Advice | None:
    """A scope around the program; ``free`` are the rows that it would reach."""
    flops = sum(row.flops for row in report.rows)
    narrow = sum(row.flops for row in report.rows if row.computed_in in REDUCED)
    if narrow >= flops / 2:  # such as a frozen module, which has no scopes any more
        return None
    by = max(free, key=lambda row: row.flops, default=None)
    if by is None or not by.flops:
        return None
    device = by.devices[0] if by.devices else "cpu"
    dtype = "float16" if device == "cuda" else "bfloat16"
    return Advice(
        f"run it in {dtype}",
        f'with torch.autocast("{device}", dtype=torch.{dtype}):\n    result = model(inputs)',
        "its products and convolutions run in half the width; explain it again under that scope, "
        "with timing=True, to see by how much",
    )


def _saved(report: Records, seconds: float, bytes_: int) -> tuple[float, str]:
    """A gain as a share and in words; of the bytes that casts move where no time was taken."""
    whole = sum(row.seconds for row in report.rows)
    if whole:
        return seconds / whole, f"about {1e3 * seconds:.1f} of {1e3 * whole:.1f} ms a call"
    if bytes_ < _FEW_BYTES:
        return 0.0, ""
    moved = sum(row.cast_bytes for row in report.rows)
    return bytes_ / moved, f"{bytes_ / 1e6:.1f} of the {moved / 1e6:.1f} MB that casts move a call"


def _for_weights(report: Records) -> tuple[float, Advice] | None:
    """Casts of weights, which are the same in each call."""
    if report.records_gradients or report.weights:
        return None
    seconds, moved = 0.0, 0
    for row in report.rows:
        of_weights = sum(cast.bytes_of_weights for cast in row.casts)
        if of_weights:
            moved += of_weights
            seconds += row.cast_seconds * of_weights / row.cast_bytes
    share, gain = _saved(report, seconds, moved)
    model = "jit_amp.trace(model, inputs)" if report.not_compiled else "model"
    return share, Advice(
        "cast the weights once, and not in each call",
        f"frozen = jit_amp.freeze({model}, example_inputs=inputs)",
        gain,
    )


def _for_float32(report: Records) -> tuple[float, Advice] | None:
    """The line whose casts to float32 of what is reduced cost most."""
    by_line: dict[tuple[str, int], list[Row]] = defaultdict(list)
    for row in report.rows:
        if row.policy.startswith("fp32") and any(cast.source in REDUCED for cast in row.casts):
            by_line[row.line.file, row.line.line].append(row)
    if not by_line:
        return None
    timed = any(row.seconds for row in report.rows)
    worst = max(
        by_line.values(),
        key=lambda some: sum(r.cast_seconds if timed else r.cast_bytes for r in some),
    )
    at, row = worst[0].line, worst[0]
    device = row.devices[0] if row.devices else "cpu"
    share, gain = _saved(
        report, sum(r.cast_seconds for r in worst), sum(r.cast_bytes for r in worst)
    )
    name = row.operator.removeprefix("aten::").partition(".")[0]
    return share, Advice(
        f"compute {name} at {at} in the reduced dtype, if its accuracy is enough",
        f'with torch.autocast("{device}", enabled=False):\n    {at.text}',
        gain,
        at,
    )
