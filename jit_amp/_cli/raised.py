"""What a command tells of an error that a model has raised: its line, and what to ask next."""

from __future__ import annotations

from jit_amp._base import source_files
from jit_amp._explain import stops
from jit_amp._explain.records import Place
from jit_amp._explain.sources import place_of


def place_in(error: BaseException) -> Place | None:
    """The line of the user's, or of a library's, that an error came from; None where there is none.

    Of what TorchScript runs it is the line that its own traceback names, and of an error that was
    raised in the course of another one it is the first one's.
    """
    if place := stops.place_in_traceback(str(error)):
        return place
    chain: BaseException | None = error
    found = None
    while chain is not None:
        frames = [
            (frame.f_code.co_filename, line, 0, frame.f_code.co_name)
            for frame, line in stops.frames_of(chain)
        ]
        if own := source_files.own_in(frames, lambda frame: frame[0]):
            found = place_of(own)
        chain = chain.__cause__ or (None if chain.__suppress_context__ else chain.__context__)
    return found


def with_line(error: BaseException, model: str) -> str:
    """An error's text, with the line that it came from and the command that tells more; empty where
    it came from no line."""
    place = place_in(error)
    if place is None:
        return ""
    text = stops.without_lines(stops.text_of(error))
    line = f"{source_files.shown_name(place.file)}:{place.line}: {text}"
    more = (
        f"`jit-amp explain {model}` with the same inputs tells what each operator there was given"
    )
    return "\n".join([line, *([f"    {place.text}"] if place.text else []), more])
