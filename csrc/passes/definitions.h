// What jit_amp's operators mean, in TorchScript: the definitions that seal puts in their place.
//
// They mirror ATen/autocast_mode.h: is_eligible, cached_cast, promote_type, set_opt_dtype,
// type_from_firstarg. A dtype is a number there: 6 is float32, 7 is float64 (c10/core/ScalarType.h).
#pragma once

namespace jit_amp {

inline constexpr const char* kDefinitions = R"SCRIPT(
def eligible(x: Tensor) -> bool:
    return x.is_floating_point() & (x.dtype != 7)

def cast(x: Tensor, cpu: Optional[int], cuda: Optional[int]) -> Tensor:
    floating = eligible(x)
    dtype = x.dtype
    on_cuda = x.is_cuda
    if cpu is not None:
        if floating & (not on_cuda) & (dtype != cpu):
            x = x.to(cpu)
    if cuda is not None:
        if floating & on_cuda & (dtype != cuda):
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

def widest(xs: List[Tensor], lower: int, device: str) -> int:
    result = lower
    for x in xs:
        if (x.is_cuda == (device == "cuda")) & eligible(x):
            if x.dtype == 6:
                result = 6
            else:
                assert result == 6 or x.dtype == lower, "Unexpected floating ScalarType in at::autocast::prioritize"
    return result

def opt_dtype(x: Tensor, dtype: Optional[int], devices: List[str]) -> Optional[int]:
    if dtype is not None:
        return dtype
    if eligible(x) & x.is_cuda:
        return 6
    return None

def first_dtype(x: Tensor, devices: List[str]) -> int:
    if eligible(x) & x.is_cuda:
        return 6
    return x.dtype

def check_input(x: Tensor, dtype: int, cuda: bool, message: str):
    assert (x.dtype == dtype) & (x.is_cuda == cuda), message
)SCRIPT";

}  // namespace jit_amp
