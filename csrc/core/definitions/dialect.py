# What jit_amp's own operators mean; legalize puts it in their place. Mirrors ATen/autocast_mode.h:
# is_eligible, cached_cast, promote_type, set_opt_dtype. A dtype is a number here: 6 is float32, 7
# is float64 (c10/core/ScalarType.h).


def eligible(x: Tensor) -> bool:
    return x.is_floating_point() & (x.dtype != 7)


def cast(x: Tensor, cpu: Optional[int], cuda: Optional[int]) -> Tensor:
    floating = eligible(x)
    dtype = x.dtype
    if cpu is not None:
        if floating & x.is_cpu & (dtype != cpu):
            x = x.to(cpu)
    if cuda is not None:
        if floating & x.is_cuda & (dtype != cuda):
            x = x.to(cuda)
    return x


def cast_optional(x: Optional[Tensor], cpu: Optional[int], cuda: Optional[int]) -> Optional[Tensor]:
    if x is not None:
        x = cast(x, cpu, cuda)
    return x


def cast_list(xs: List[Tensor], cpu: Optional[int], cuda: Optional[int]) -> List[Tensor]:
    out: List[Tensor] = []
    for x in xs:
        out.append(cast(x, cpu, cuda))
    return out


def wider(x: Tensor, result: int, lower: int, device: str) -> int:
    if (x.is_cuda if device == "cuda" else x.is_cpu) & eligible(x):
        if x.dtype == 6:
            result = 6
        else:
            assert result == 6 or x.dtype == lower, (
                "Unexpected floating ScalarType in at::autocast::prioritize"
            )
    return result


def widest(xs: List[Tensor], lower: Optional[int], device: str) -> Optional[int]:
    if lower is None:
        return None
    result: int = lower
    for x in xs:
        result = wider(x, result, lower, device)
    return result


def opt_dtype(x: Tensor, dtype: Optional[int], cuda: bool) -> Optional[int]:
    if dtype is None and cuda:
        if eligible(x) & x.is_cuda:
            dtype = 6
    return dtype


def known_device(name: str):
    assert name == "cpu" or name == "cuda", (
        "jit_amp: a device that torch.autocast is for, or is asked about, and that is known at run time can be 'cpu' or 'cuda'"
    )


def fail(message: str):
    assert False, "jit_amp: " + message
