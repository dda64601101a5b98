# Attention: what fuse_attention puts in the place of products and a softmax, in TorchScript. The
# number 6 is float32 (c10/core/ScalarType.h), and the layout 0 a strided tensor's. Where the
# processor emulates the dtype, float32 is as fast.
#
# In blocks the scores are made as the program makes them, but of so many heads or queries at a
# time that they fit into a processor's cache: 4 MiB, and the weights that the softmax makes of
# them as much. Their memory is taken once, since to get new memory for each step takes longer than
# to compute. Where the program scales or adds in float32 (`wide`), so do blocks; where it does so
# in bfloat16, the product is scaled before it is rounded.
#
# On CUDA nothing here reads a number of a tensor. What the kernels want, from
# aten/src/ATen/native/transformers/cuda: operands and masks of whole 16 bytes, a mask whose last
# dimension is in one piece, at most 65,535 batches and heads. They take a row of the mask without
# anything left, and a row of q that is not finite, for zeros where eager makes NaN; minus infinity
# times 0 is NaN. In bfloat16 (15) they take the lowest number for minus infinity.


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


def leaves_any(mask: Tensor, limit: float) -> bool:
    best = mask.amax(-1)
    return bool(torch.logical_and(best > -limit, best < limit).all())


def is_moderate(scale: float) -> bool:
    return abs(scale) > 1e-30 and abs(scale) < 1e30


def rows(x: Tensor, sizes: List[int], dtype: int) -> Tensor:
    x = x.to(dtype).view(four_sizes(x)).expand([sizes[0], sizes[1], x.size(-2), x.size(-1)])
    return x if x.stride(-1) == 1 else x.contiguous()


def is_worth_it(q: Tensor, k: Tensor, blocks: bool) -> bool:
    sizes = four_sizes(q)
    return not blocks or sizes[0] * sizes[1] * sizes[2] * k.size(-2) >= 2097152


def is_as_large(v: Tensor, q: Tensor) -> bool:
    return v.dim() == q.dim() and v.size()[:-2] == q.size()[:-2]


def attend_in_blocks(
    q: Tensor, k: Tensor, v: Tensor, mask: Optional[Tensor], scale: float, wide: bool
) -> Tensor:
    n = q.size(1)
    queries = q.size(2)
    keys = k.size(2)
    width = q.size(3)
    q, k, v = q.contiguous(), k.contiguous(), v.contiguous()
    added = q if mask is None else mask
    has_mask = mask is not None
    out = torch.empty_like(q)
    scores_at_once = 1048576 if wide else 2097152
    matrices = max(1, scores_at_once // (queries * keys))
    batches = min(q.size(0), max(1, matrices // n))
    heads = min(n, matrices)
    rows = min(queries, max(1, scores_at_once // keys))
    memory = torch.empty([2, batches * heads * rows * keys], dtype=q.dtype)
    wide_memory = torch.empty([2, memory.size(1) if wide else 0], dtype=6)
    for b in range(0, q.size(0), batches):
        for h in range(0, n, heads):
            keys_here = k[b : b + batches, h : h + heads].reshape([-1, keys, width])
            v_here = v[b : b + batches, h : h + heads].reshape([-1, keys, width])
            for i in range(0, queries, rows):
                q_here = q[b : b + batches, h : h + heads, i : i + rows]
                sizes = [q_here.size(0), q_here.size(1), q_here.size(2), keys]
                count = sizes[0] * sizes[1] * sizes[2] * keys
                flat = [sizes[0] * sizes[1], sizes[2], keys]
                scores = memory[0, :count].view(flat)
                weights = memory[1, :count].view(flat)
                torch.baddbmm(
                    scores,
                    q_here.reshape([-1, sizes[2], width]),
                    keys_here.transpose(1, 2),
                    beta=0,
                    alpha=1.0 if wide else scale,
                    out=scores,
                )
                if wide:
                    wide_scores = wide_memory[0, :count].view(flat)
                    wide_weights = wide_memory[1, :count].view(flat)
                    wide_scores.copy_(scores)
                    wide_scores.mul_(scale)
                    if has_mask:
                        wide_scores.view(sizes).add_(
                            added[b : b + batches, h : h + heads, i : i + rows]
                        )
                    torch.softmax(wide_scores, -1, out=wide_weights)
                    weights.copy_(wide_weights)
                else:
                    if has_mask:
                        scores.view(sizes).add_(added[b : b + batches, h : h + heads, i : i + rows])
                    torch.softmax(scores, -1, out=weights)
                torch.bmm(
                    weights,
                    v_here,
                    out=out[b : b + batches, h : h + heads, i : i + rows].view(
                        [-1, sizes[2], width]
                    ),
                )
    return out


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Optional[Tensor],
    scale: float,
    emulated: bool,
    blocks: bool,
    wide: bool,
) -> Tensor:
    sizes = four_sizes(q)
    dtype = 6 if emulated else v.dtype
    if mask is not None:
        mask = mask.expand([sizes[0], sizes[1], sizes[2], k.size(-2)])
        if mask.dtype != dtype:
            mask = mask.to(6)
            wide = True
    q4 = rows(q, sizes, dtype)
    k4 = rows(k, sizes, dtype)
    v4 = rows(v, sizes, dtype)
    if blocks:
        out = attend_in_blocks(q4, k4, v4, mask, scale, wide)
    else:
        out = torch.scaled_dot_product_attention(q4, k4, v4, mask, 0.0, False, scale=scale)
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
        out = torch.scaled_dot_product_attention(
            q4, k4.contiguous(), v4.contiguous(), whole, 0.0, False, scale=scale
        )
        out = out + m.amax([-1], True) * 0
    out = out + (q4 * 0).amax([-1], True)
    return out.contiguous().view(q.size())
