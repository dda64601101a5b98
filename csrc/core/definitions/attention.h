// Attention: what fuse_attention puts in the place of products and a softmax, in TorchScript. The
// number 6 is float32 (c10/core/ScalarType.h), and the layout 0 a strided tensor's. Where the
// processor emulates the dtype, float32 is as fast.
//
// On CUDA nothing here reads a number of a tensor. What the kernels want, from
// aten/src/ATen/native/transformers/cuda: operands and masks of whole 16 bytes, a mask whose last
// dimension is in one piece, at most 65,535 batches and heads. They take a row of the mask without
// anything left, and a row of q that is not finite, for zeros where eager makes NaN; minus infinity
// times 0 is NaN. In bfloat16 (15) they take the lowest number for minus infinity.
#pragma once

namespace jit_amp {

inline constexpr const char* kAttention = R"SCRIPT(
def is_usable(x: Tensor) -> bool:
    return not x.requires_grad and x.layout == 0 and not x.is_nested

def four_sizes(x: Tensor) -> List[int]:
    return [1] * (4 - x.dim()) + x.size()

def broadcasts(size: int, to: int) -> bool:
    return size == 1 or size == to

def longest(x: Tensor) -> float:
    return float(torch.linalg_vector_norm(x, 2, [-1], dtype=6).amax())

def largest_score(q: Tensor, k: Tensor) -> float:
    return longest(q) * longest(k)

def can_attend(q: Tensor, k: Tensor, v: Tensor, rank: int) -> bool:
    n = q.dim()
    fits = n > 1 and n < 5 and k.dim() > 1 and k.dim() <= n and v.dim() > 1 and v.dim() <= n
    fits = fits and (rank == 0 or rank == n) and is_usable(q) and is_usable(k) and is_usable(v)
    if fits:
        a = four_sizes(q)
        b = four_sizes(k)
        c = four_sizes(v)
        fits = broadcasts(b[0], a[0]) and broadcasts(b[1], a[1])
        fits = fits and broadcasts(c[0], a[0]) and broadcasts(c[1], a[1])
        fits = fits and a[3] == b[3] and a[3] == c[3] and b[2] == c[2]
        fits = fits and q.numel() > 0 and k.numel() > 0
    return fits

def turned(x: Tensor) -> Tensor:
    if x.dim() == 0:
        return x
    if x.dim() == 1:
        return x.unsqueeze(-1)
    return x.transpose(-2, -1)

def term(x: Tensor, factor: float, q: Tensor) -> Tensor:
    if factor == 1.0 and (x.dtype == q.dtype or x.dtype == 6):
        return x
    return x.to(6) * factor

def excluding(excluded: Tensor, q: Tensor) -> Tensor:
    return torch.zeros([1], dtype=q.dtype, device=q.device).masked_fill(excluded, float("-inf"))

def can_mask(mask: Tensor, q: Tensor, k: Tensor) -> bool:
    fits = is_usable(mask) and mask.dim() <= q.dim()
    if fits:
        a = four_sizes(q)
        m = four_sizes(mask)
        fits = broadcasts(m[0], a[0]) and broadcasts(m[1], a[1]) and broadcasts(m[2], a[2])
        fits = fits and broadcasts(m[3], k.size(-2))
    return fits

def leaves_any(mask: Tensor) -> bool:
    return bool(torch.isfinite(mask.amax(-1)).all())

def rows(x: Tensor, sizes: List[int], dtype: int) -> Tensor:
    x = x.to(dtype).view(four_sizes(x)).expand([sizes[0], sizes[1], x.size(-2), x.size(-1)])
    return x if x.stride(-1) == 1 else x.contiguous()

def attend(q: Tensor, k: Tensor, v: Tensor, mask: Optional[Tensor], scale: float, emulated: bool) -> Tensor:
    sizes = four_sizes(q)
    dtype = 6 if emulated else v.dtype
    if mask is not None:
        mask = mask.expand([sizes[0], sizes[1], sizes[2], k.size(-2)])
        if mask.dtype != dtype:
            mask = mask.to(6)
    out = torch.scaled_dot_product_attention(rows(q, sizes, dtype), rows(k, sizes, dtype), rows(v, sizes, dtype), mask, 0.0, False, scale=scale)
    return out.to(v.dtype).contiguous().view(q.size())

def is_for_gpu(q: Tensor, k: Tensor) -> bool:
    sizes = four_sizes(q)
    fits = q.size(-1) % 8 == 0 and sizes[0] < 65536 and sizes[1] < 65536
    return fits and q.size(-2) * k.size(-2) < 4294967296

def aligned_rows(x: Tensor, sizes: List[int], dtype: int) -> Tensor:
    x = rows(x, sizes, dtype)
    strides = x.stride()
    is_aligned = strides[0] % 8 == 0 and strides[1] % 8 == 0 and strides[2] % 8 == 0
    return x if is_aligned and x.storage_offset() % 8 == 0 else x.clone(memory_format=0)

def aligned_mask(mask: Tensor, keys: int, dtype: int) -> Tensor:
    m = mask.to(dtype)
    m = m.view(four_sizes(m)).expand([-1, -1, -1, keys])
    if dtype == 15:
        m = torch.where(m == float("-inf"), m, m.clamp(-1e38))
    if m.stride(-1) != 1 or m.storage_offset() % 8 != 0:
        m = m.clone(memory_format=0)
    return m

def attend_on_gpu(q: Tensor, k: Tensor, v: Tensor, mask: Optional[Tensor], scale: float) -> Tensor:
    sizes = four_sizes(q)
    q4 = aligned_rows(q, sizes, v.dtype)
    k4 = aligned_rows(k, sizes, v.dtype)
    v4 = aligned_rows(v, sizes, v.dtype)
    if mask is None:
        out = torch.scaled_dot_product_attention(q4, k4, v4, None, 0.0, False, scale=scale)
    else:
        m = aligned_mask(mask, k.size(-2), v.dtype)
        whole = m.expand([-1, -1, sizes[2], -1])
        out = torch.scaled_dot_product_attention(q4, k4.contiguous(), v4.contiguous(), whole, 0.0, False, scale=scale)
        out = out + m.amax([-1], True) * 0
    out = out + (q4 * 0).amax([-1], True)
    return out.contiguous().view(q.size())
)SCRIPT";

}  // namespace jit_amp
