# Mathematics, as in math.py: what CUDA's autocast casts and CPU's does not.


def is_eligible_on_cuda(x: Tensor) -> bool:
    return x.is_floating_point() & (x.dtype != 7) & x.is_cuda


def fp32(x: Tensor) -> Tensor:
    return x.to(6) if is_eligible_on_cuda(x) else x


def fp32_if_none(x: Tensor, dtype: Optional[int]) -> Optional[int]:
    if dtype is None and is_eligible_on_cuda(x):
        dtype = 6
    return dtype


def arccos(x: Tensor) -> Tensor:
    return torch.acos(x)


def arcsin(x: Tensor) -> Tensor:
    return torch.asin(x)


def special_erfinv(x: Tensor) -> Tensor:
    return torch.erfinv(x)


def special_expm1(x: Tensor) -> Tensor:
    return torch.expm1(x)


def special_log1p(x: Tensor) -> Tensor:
    return torch.log1p(x)


def special_logsumexp(x: Tensor, dim: List[int], keepdim: bool) -> Tensor:
    return torch.logsumexp(x, dim, keepdim)


def special_softmax(x: Tensor, dim: int, dtype: Optional[int]) -> Tensor:
    return torch.softmax(x, dim, dtype)


def special_log_softmax(x: Tensor, dim: int, dtype: Optional[int]) -> Tensor:
    return torch.log_softmax(x, dim, dtype)


def _safe_softmax(x: Tensor, dim: int, dtype: Optional[int]) -> Tensor:
    return torch._safe_softmax(x, dim, fp32_if_none(x, dtype))


def square(x: Tensor) -> Tensor:
    return torch.pow(x, 2)


def index_put__hacked_twin(
    x: Tensor, indices: List[Tensor], values: Tensor, accumulate: bool
) -> Tensor:
    places: List[Optional[Tensor]] = []
    for index in indices:
        places.append(index)
    return torch.index_put(x, places, values, accumulate)


def _unsafe_index_put__hacked_twin(
    x: Tensor, indices: List[Tensor], values: Tensor, accumulate: bool
) -> Tensor:
    return index_put__hacked_twin(x, indices, values, accumulate)


def _unsafe_index_put(
    x: Tensor, indices: List[Optional[Tensor]], values: Tensor, accumulate: bool
) -> Tensor:
    return torch.index_put(x, indices, values, accumulate)


def arctan2(x: Tensor, y: Tensor) -> Tensor:
    return torch.atan2(x, y)


def trace(x: Tensor) -> Tensor:
    return x.diagonal().sum() if x.is_cuda else torch.trace(x)


def linalg_norm(
    x: Tensor, ord: Optional[number], dim: Optional[List[int]], keepdim: bool, dtype: Optional[int]
) -> Tensor:
    return torch.linalg_norm(x, ord, dim, keepdim, dtype=fp32_if_none(x, dtype))


def linalg_norm__ord_str(
    x: Tensor, ord: str, dim: Optional[List[int]], keepdim: bool, dtype: Optional[int]
) -> Tensor:
    return torch.linalg_norm(x, ord, dim, keepdim, dtype=fp32_if_none(x, dtype))


def norm_except_dim(x: Tensor, pow: int, dim: int) -> Tensor:
    if dim == -1:
        return torch.norm(x, pow)
    if dim > 0 and dim == x.dim() - 1:
        norms = torch.norm(x.contiguous().view([-1, x.size(dim)]), pow, [0])
        return norms.view([1 for _ in range(dim)] + [-1])
    x = x.transpose(0, dim)
    norms = torch.norm(x.contiguous().view([x.size(0), -1]), pow, [1])
    return norms.view([-1] + [1 for _ in range(x.dim() - 1)]).transpose(0, dim)


def _weight_norm(v: Tensor, g: Tensor, dim: int) -> Tensor:
    if dim == 0 or dim == v.dim() - 1:
        return torch._weight_norm(v, g, dim)
    return v * (g / norm_except_dim(v, 2, dim))


def pairwise_distance(x: Tensor, y: Tensor, p: float, eps: float, keepdim: bool) -> Tensor:
    return torch.norm(x - y + eps, p, [max(x.dim(), y.dim()) - 1], keepdim)


def sum_to_size(x: Tensor, size: List[int]) -> Tensor:
    if len(size) == 0:
        return x.sum()
    extra = x.dim() - len(size)
    assert extra >= 0, "sum_to_size: the size is not expandable to the tensor's"
    dims: List[int] = []
    for i in range(x.dim()):
        if i < extra:
            dims.append(i)
        elif size[i - extra] != x.size(i):
            assert size[i - extra] == 1, "sum_to_size: the size is not expandable to the tensor's"
            dims.append(i)
    if len(dims) > 0:
        x = x.sum(dims, True)
    return x.view(size) if extra > 0 else x


def power_of_two(x: Tensor, exponent: Tensor) -> Tensor:
    if x.dtype == 6 or not (x.is_floating_point() or x.is_complex()):
        return torch.pow(2.0, exponent)
    return torch.pow(torch.full([], 2.0, dtype=x.dtype, device=x.device), exponent)


def ldexp__Tensor(x: Tensor, exponent: Tensor) -> Tensor:
    if x.is_floating_point() and not (exponent.is_floating_point() or exponent.is_complex()):
        result = torch.ldexp(x, exponent)  # by a kernel of its own, as on CPU
    else:
        result = x * power_of_two(x, exponent)
    return result


def mvlgamma(x: Tensor, p: int) -> Tensor:
    dtype = x.dtype if x.is_floating_point() else 6
    steps = torch.arange(0.5 - 0.5 * p, 0.5, 0.5, dtype=dtype, device=x.device)
    return torch.lgamma(x.unsqueeze(-1) + steps).sum([-1]) + p * (p - 1) * 0.28618247146235004


def special_multigammaln(x: Tensor, p: int) -> Tensor:
    return mvlgamma(x, p)


def vander(x: Tensor, N: Optional[int], increasing: bool) -> Tensor:
    assert x.dim() == 1, "x must be a one-dimensional tensor."
    columns = x.size(0) if N is None else N
    powers = torch.ones(
        [x.size(0), columns], dtype=torch.promote_types(x.dtype, 4), device=x.device
    )
    if columns > 1:
        rest = powers.slice(1, 1)
        rest.copy_(x.unsqueeze(1))
        rest.copy_(torch.cumprod(rest, 1))
    return powers if increasing else powers.flip([1])


def zeros_without(y: Tensor, dim: int) -> Tensor:
    sizes = y.size()
    sizes.pop(dim)
    return torch.zeros(sizes, dtype=y.dtype, device=y.device)


def trapezoid__dx(y: Tensor, dx: number, dim: int) -> Tensor:
    return trapz__dx(y, float(dx), dim)


def trapz__dx(y: Tensor, dx: float, dim: int) -> Tensor:
    if y.size(dim) == 0:
        return zeros_without(y, dim)
    return (y.sum([dim]) - (y.select(dim, 0) + y.select(dim, -1)) * 0.5) * dx


def spacing(x: Tensor, y: Tensor, dim: int) -> Tensor:
    assert y.dtype != 11 and x.dtype != 11, (
        "trapezoid: received a bool input for `x` or `y`, but bool is not supported"
    )
    if x.dim() == 1:
        assert x.size(0) == y.size(dim), (
            "trapezoid: There must be one `x` value for each sample point"
        )
        sizes = [1 for _ in range(y.dim())]
        sizes[dim] = -1
        x = x.view(sizes)
    elif x.dim() < y.dim():
        x = x.view([1 for _ in range(y.dim() - x.dim())] + x.size())
    return x.slice(dim, 1) - x.slice(dim, 0, -1)


def trapezoid__x(y: Tensor, x: Tensor, dim: int) -> Tensor:
    if dim < 0:
        dim = dim + y.dim()
    if y.size(dim) == 0:
        return zeros_without(y, dim)
    dx = spacing(x, y, dim)
    return ((y.slice(dim, 0, -1) + y.slice(dim, 1)) * dx).sum([dim]) / 2.0


def trapz__x(y: Tensor, x: Tensor, dim: int) -> Tensor:
    return trapezoid__x(y, x, dim)


def cumulative_trapezoid__x(y: Tensor, x: Tensor, dim: int) -> Tensor:
    if dim < 0:
        dim = dim + y.dim()
    dx = spacing(x, y, dim)
    return ((y.slice(dim, 0, -1) + y.slice(dim, 1)) * dx).cumsum(dim) / 2.0


def cumulative_trapezoid__dx(y: Tensor, dx: number, dim: int) -> Tensor:
    return ((y.slice(dim, 0, -1) + y.slice(dim, 1)) * (float(dx) / 2.0)).cumsum(dim)


def cross_entropy_loss(
    x: Tensor,
    target: Tensor,
    weight: Optional[Tensor],
    reduction: int,
    ignore_index: int,
    label_smoothing: float,
) -> Tensor:
    dim = 0 if x.dim() == 1 else 1
    classes = x.size(dim)
    logs = torch.log_softmax(x, dim, x.dtype)
    weights: Optional[Tensor] = None
    if weight is not None:
        shape = [1 for _ in range(x.dim())]
        shape[dim] = weight.size(0)
        weights = weight.view(shape)
    if x.size() == target.size():
        assert target.is_floating_point(), (
            "Expected floating point type for target with class probabilities"
        )
        assert ignore_index < 0, "ignore_index is not supported for floating point target"
        assert weight is None or (weight.dim() == 1 and weight.numel() == classes), (
            "cross_entropy: weight tensor should be defined either for all classes or no classes"
        )
        if label_smoothing > 0.0:
            assert label_smoothing <= 1.0, "label_smoothing must be between 0.0 and 1.0"
            target = target * (1 - label_smoothing) + label_smoothing / classes
        terms = logs * target
        if weights is not None:
            terms = terms * weights
        if reduction == 0:
            return -terms.sum([dim])
        if reduction == 2:
            return -terms.sum()
        if x.numel() == 0:
            return -terms.sum().fill_(float("nan"))
        return -terms.sum() / (x.numel() // classes)
    loss = torch.nll_loss_nd(logs, target, weight, reduction, ignore_index)
    if label_smoothing > 0.0:
        assert label_smoothing <= 1.0, "label_smoothing must be between 0.0 and 1.0"
        terms = logs if weights is None else logs * weights
        ignored = target == ignore_index
        smooth = (-terms.sum([dim])).masked_fill(ignored, 0.0)
        if reduction != 0:
            smooth = smooth.sum()
        if reduction == 1:
            if weight is None:
                smooth = smooth / (~ignored).sum()
            else:
                kept = torch.nonzero(~ignored.flatten()).flatten()
                smooth = smooth / weight.gather(0, target.flatten().index_select(0, kept)).sum()
        loss = (1 - label_smoothing) * loss + smooth * (label_smoothing / classes)
    return loss


def lowered_bias(x: Tensor, bias: Optional[Tensor]) -> Optional[Tensor]:
    if not x.is_floating_point():
        assert not x.is_complex(), (
            "jit_amp: a convolution of complex tensors with string padding inside autocast cannot be exported"
        )
    if bias is not None:
        bias = lowered(bias)
    return bias


def conv1d__padding(
    x: Tensor,
    weight: Tensor,
    bias: Optional[Tensor],
    stride: List[int],
    padding: str,
    dilation: List[int],
    groups: int,
) -> Tensor:
    return torch.conv1d(
        lowered(x), lowered(weight), lowered_bias(x, bias), stride, padding, dilation, groups
    )


def conv2d__padding(
    x: Tensor,
    weight: Tensor,
    bias: Optional[Tensor],
    stride: List[int],
    padding: str,
    dilation: List[int],
    groups: int,
) -> Tensor:
    return torch.conv2d(
        lowered(x), lowered(weight), lowered_bias(x, bias), stride, padding, dilation, groups
    )


def conv3d__padding(
    x: Tensor,
    weight: Tensor,
    bias: Optional[Tensor],
    stride: List[int],
    padding: str,
    dilation: List[int],
    groups: int,
) -> Tensor:
    return torch.conv3d(
        lowered(x), lowered(weight), lowered_bias(x, bias), stride, padding, dilation, groups
    )


def _convolution_mode(
    x: Tensor,
    weight: Tensor,
    bias: Optional[Tensor],
    stride: List[int],
    padding: str,
    dilation: List[int],
    groups: int,
) -> Tensor:
    return torch._convolution_mode(
        lowered(x), lowered(weight), lowered_bias(x, bias), stride, padding, dilation, groups
    )


def pinverse(x: Tensor, rcond: float) -> Tensor:
    return torch.linalg_pinv(x, rcond, False)


def check_matrix_exp(x: Tensor):
    if is_eligible_on_cuda(x):
        assert x.dtype == 6, (
            "jit_amp: matrix_exp of a reduced dtype on CUDA inside autocast cannot be exported"
        )


def linalg_matrix_exp(x: Tensor) -> Tensor:
    check_matrix_exp(x)
    return torch.linalg_matrix_exp(x)


def matrix_exp(x: Tensor) -> Tensor:
    check_matrix_exp(x)
    return torch.matrix_exp(x)


def istft(
    x: Tensor,
    n_fft: int,
    hop_length: Optional[int],
    win_length: Optional[int],
    window: Optional[Tensor],
    center: bool,
    normalized: bool,
    onesided: Optional[bool],
    length: Optional[int],
    return_complex: bool,
) -> Tensor:
    if window is not None:
        if is_eligible_on_cuda(window) and window.dtype != 6:
            assert x.dtype != 8, (
                "jit_amp: istft of complex32 on CUDA inside autocast cannot be exported"
            )
            window = fp32(window)
    return torch.istft(
        x,
        n_fft,
        hop_length,
        win_length,
        window,
        center,
        normalized,
        onesided,
        length,
        return_complex,
    )


def _native_multi_head_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim: int,
    num_head: int,
    qkv_weight: Tensor,
    qkv_bias: Tensor,
    proj_weight: Tensor,
    proj_bias: Tensor,
    mask: Optional[Tensor],
    need_weights: bool,
    average_attn_weights: bool,
    mask_type: Optional[int],
) -> Tuple[Tensor, Tensor]:
    assert not query.is_cuda, "jit_amp: CUDA's fused attention inside autocast cannot be exported"
    return torch._native_multi_head_attention(
        query,
        key,
        value,
        embed_dim,
        num_head,
        qkv_weight,
        qkv_bias,
        proj_weight,
        proj_bias,
        mask,
        need_weights,
        average_attn_weights,
        mask_type,
    )


def _transformer_encoder_layer_fwd(
    src: Tensor,
    embed_dim: int,
    num_heads: int,
    qkv_weight: Tensor,
    qkv_bias: Tensor,
    proj_weight: Tensor,
    proj_bias: Tensor,
    use_gelu: bool,
    norm_first: bool,
    eps: float,
    norm_weight_1: Tensor,
    norm_bias_1: Tensor,
    norm_weight_2: Tensor,
    norm_bias_2: Tensor,
    ffn_weight_1: Tensor,
    ffn_bias_1: Tensor,
    ffn_weight_2: Tensor,
    ffn_bias_2: Tensor,
    mask: Optional[Tensor],
    mask_type: Optional[int],
) -> Tensor:
    assert not src.is_cuda, "jit_amp: CUDA's fused encoder layer inside autocast cannot be exported"
    return torch._transformer_encoder_layer_fwd(
        src,
        embed_dim,
        num_heads,
        qkv_weight,
        qkv_bias,
        proj_weight,
        proj_bias,
        use_gelu,
        norm_first,
        eps,
        norm_weight_1,
        norm_bias_1,
        norm_weight_2,
        norm_bias_2,
        ffn_weight_1,
        ffn_bias_1,
        ffn_weight_2,
        ffn_bias_2,
        mask,
        mask_type,
    )
