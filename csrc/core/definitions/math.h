// Mathematics: what composite operators do with ATen's, from what the installed PyTorch was seen to
// call. Also in aten/src/ATen/native: LinearAlgebra.cpp, Correlation.cpp, AffineGridGenerator.cpp,
// Integration.cpp, LossNLL.cpp. A number in a dtype's place is one of c10/core/ScalarType.h: 4 is
// int64, 6 float32, 7 float64, 8 to 10 complex, 11 bool.
//
// Where a definition is the operator itself, on operands that are cast or not, that is all that
// autocast does: what it calls inside casts no more.
//
// kMathComposites: on every device. kMathCompositesOnCpu: operators that on CPU call others of the
// float32 list, but with operands that are float32, float64 or complex already.
// kMathCompositesOnCuda: what CUDA's autocast casts and CPU's does not.
#pragma once

namespace jit_amp {

inline constexpr const char* kMathComposites = R"SCRIPT(
def linalg_matmul(x: Tensor, y: Tensor) -> Tensor:
    return torch.matmul(x, y)

def bits_of(n: int) -> List[bool]:
    bits: List[bool] = []
    while n > 0:
        bits.append(n % 2 == 1)
        n = n // 2
    return bits

def linalg_matrix_power(x: Tensor, n: int) -> Tensor:
    assert x.dim() >= 2 and x.size(-1) == x.size(-2), "linalg.matrix_power: A must be batches of square matrices"
    if n == 0:
        identity = torch.eye(x.size(-1), dtype=x.dtype, device=x.device)
        return identity.expand(x.size()).clone(memory_format=0)
    if n == 1:
        return x.clone(memory_format=0)
    if n < 0:
        x = torch.linalg_inv(x)
    if abs(n) == 3:
        return torch.matmul(torch.matmul(x, x), x)
    power = x
    result = x
    bits = bits_of(abs(n))
    lowest = bits.index(True)
    for i in range(len(bits)):
        if i > 0:
            power = torch.matmul(power, power)
        if bits[i]:
            result = power if i == lowest else torch.matmul(result, power)
    return result

def matrix_power(x: Tensor, n: int) -> Tensor:
    return linalg_matrix_power(x, n)

def lowered_alike(tensors: List[Tensor]) -> List[Tensor]:
    for tensor in tensors:
        assert tensor.dtype == tensors[0].dtype, "multi_dot(): all tensors must have the same dtype"
    return [lowered(tensor) for tensor in tensors]

def _sparse_mm(x: Tensor, y: Tensor) -> Tensor:
    # One that is sparse is lowered too, by `addmm`; a product of two sparse ones is no `addmm`.
    if x.is_sparse and y.is_sparse:
        result = torch._sparse_mm(x, y)
    else:
        result = torch._sparse_mm(lowered(x), lowered(y))
    return result

def _sparse_addmm(t: Tensor, x: Tensor, y: Tensor, beta: number, alpha: number) -> Tensor:
    return torch._sparse_addmm(lowered(t), lowered(x), lowered(y), beta=beta, alpha=alpha)

def linalg_multi_dot(tensors: List[Tensor]) -> Tensor:
    return torch.linalg_multi_dot(lowered_alike(tensors))

def chain_matmul(matrices: List[Tensor]) -> Tensor:
    if len(matrices) == 1:
        return torch.chain_matmul(matrices)
    return torch.chain_matmul(lowered_alike(matrices))

def inner(x: Tensor, y: Tensor) -> Tensor:
    if x.dim() == 0 or y.dim() == 0:
        return x * y
    assert x.size(-1) == y.size(-1), "inner() the last dimension must match on both input tensors"
    return torch.tensordot(x, y, [-1], [-1])

def cov(x: Tensor, correction: int, fweights: Optional[Tensor], aweights: Optional[Tensor]) -> Tensor:
    assert x.dim() <= 2, "cov(): expected input to have two or fewer dimensions"
    assert x.dtype != 11, "cov(): bool dtype is not supported for input"
    if x.dim() < 2:
        x = x.view([1, -1])
    count = x.size(1)
    weights: Optional[Tensor] = None
    if fweights is not None:
        assert fweights.dim() <= 1 and fweights.numel() == count, "cov(): expected one of fweights for each observation"
        assert not (fweights.is_floating_point() or fweights.is_complex() or fweights.dtype == 11), "cov(): expected fweights to have integral dtype"
        assert count == 0 or bool(fweights.min() >= 0), "cov(): fweights cannot be negative"
        weights = fweights
    if aweights is not None:
        assert aweights.dim() <= 1 and aweights.numel() == count, "cov(): expected one of aweights for each observation"
        assert aweights.is_floating_point(), "cov(): expected aweights to have floating point dtype"
        assert count == 0 or bool(aweights.min() >= 0), "cov(): aweights cannot be negative"
        weights = aweights if weights is None else weights * aweights
    if weights is None:
        total = torch.scalar_tensor(count, dtype=4, device=x.device)
        average = x.sum(1) / total
        factor = torch.scalar_tensor(count - correction, dtype=4, device=x.device)
    else:
        total = weights.sum()
        assert bool(total != 0), "cov(): weights sum to zero, can't be normalized"
        average = (x * weights).sum(1) / total
        factor = total
        if correction != 0:
            if aweights is None:
                factor = total - correction
            elif fweights is None and count == 1 and correction == 1:
                factor = torch.scalar_tensor(0, dtype=4, device=x.device)
            else:
                factor = total - (weights * aweights).sum() * correction / total
    factor = factor.clamp(0)
    if count == 1 and (fweights is None) != (aweights is None):
        # Eager writes the zeros into what it was given.
        x = torch.zeros_like(x)
        if not (x.is_floating_point() or x.is_complex()):
            x = x.to(6)
    else:
        x = x - average.unsqueeze(1)
    weighted = x if weights is None else x * weights
    return torch.true_divide(torch.mm(x, weighted.t().conj()), factor).squeeze()

def corrcoef(x: Tensor) -> Tensor:
    c = cov(x, 1, None, None)
    if c.dim() == 0:
        return c / c
    variances = c.diagonal()
    deviations = torch.sqrt(torch.real(variances) if c.is_complex() else variances)
    c = c / deviations.view([-1, 1]) / deviations.view([1, -1])
    if c.is_complex():
        return torch.complex(torch.real(c).clip(-1, 1), torch.imag(c).clip(-1, 1))
    return c.clip(-1, 1)

def steps_of_a_grid(like: Tensor, count: int, align_corners: bool) -> Tensor:
    if count <= 1:
        return torch.zeros([1], dtype=like.dtype, device=like.device)
    steps = torch.linspace(-1, 1, count, dtype=like.dtype, device=like.device)
    return steps if align_corners else steps * (count - 1) / count

def affine_grid_generator(theta: Tensor, size: List[int], align_corners: bool) -> Tensor:
    rank = len(size) - 2
    assert rank == 2 or rank == 3, "AffineGridGenerator needs 4d (spatial) or 5d (volumetric) input"
    shape = [size[0]] + size[2:]
    grid = torch.ones(shape + [rank + 1], dtype=theta.dtype, device=theta.device)
    for i in range(rank):
        steps = steps_of_a_grid(theta, size[-1 - i], align_corners)
        grid.select(-1, i).copy_(steps.view([-1] + [1 for _ in range(i)]))
    points = torch.bmm(grid.flatten(1, -2), theta.transpose(1, 2))
    return points.view(shape + [rank])

def pseudoinverse(x: Tensor, atol: Tensor, rtol: Tensor, hermitian: bool) -> Tensor:
    assert x.dim() >= 2 and (x.dtype == 6 or x.dtype == 7 or x.dtype == 9 or x.dtype == 10), "linalg.pinv: expected a tensor with 2 or more dimensions of float, double, cfloat or cdouble types"
    if x.numel() == 0:
        u, s, v = torch.svd(x)
        return torch.matmul(v * s.reciprocal().unsqueeze(-2), u.mH)
    if hermitian:
        values, u = torch.linalg_eigh(x)
        v = u
        magnitudes = values.abs()
        largest = magnitudes.amax([-1], True)
    else:
        u, values, v = torch.svd(x)
        magnitudes = values
        largest = values.narrow(-1, 0, 1)
    tolerance = torch.max(atol.unsqueeze(-1), rtol.unsqueeze(-1) * largest)
    nothing = torch.zeros([], dtype=values.dtype, device=values.device)
    inverses = torch.where(magnitudes > tolerance, values.reciprocal(), nothing).to(x.dtype)
    return torch.matmul(v * inverses.unsqueeze(-2), u.mH)

def smallest_step(x: Tensor) -> float:
    return 2.220446049250313e-16 if x.dtype == 7 or x.dtype == 10 else 1.1920928955078125e-07

def linalg_pinv__atol_rtol_tensor(x: Tensor, atol: Optional[Tensor], rtol: Optional[Tensor], hermitian: bool) -> Tensor:
    if rtol is not None:
        relative = rtol
    else:
        relative = torch.full([], smallest_step(x) * max(x.size(-1), x.size(-2)), dtype=7, device=x.device)
        if atol is not None:
            relative = torch.where(atol > 0, torch.zeros([], dtype=7, device=x.device), relative)
    absolute = torch.zeros([], dtype=7, device=x.device) if atol is None else atol
    assert not absolute.is_complex() and not relative.is_complex(), "torch.linalg.pinv: tolerances must not be complex"
    return pseudoinverse(x, absolute, relative, hermitian)

def linalg_pinv__atol_rtol_float(x: Tensor, atol: Optional[float], rtol: Optional[float], hermitian: bool) -> Tensor:
    absolute = 0.0 if atol is None else atol
    relative = smallest_step(x) * max(x.size(-1), x.size(-2))
    if rtol is not None:
        relative = rtol
    elif absolute > 0.0:
        relative = 0.0
    return pseudoinverse(x, torch.full([], absolute, dtype=7, device=x.device), torch.full([], relative, dtype=7, device=x.device), hermitian)

def linalg_pinv(x: Tensor, rcond: float, hermitian: bool) -> Tensor:
    return linalg_pinv__atol_rtol_float(x, 0.0, rcond, hermitian)

def linalg_pinv__rcond_tensor(x: Tensor, rcond: Tensor, hermitian: bool) -> Tensor:
    return linalg_pinv__atol_rtol_tensor(x, torch.zeros([], dtype=7, device=x.device), rcond, hermitian)

def det(x: Tensor) -> Tensor:
    return torch.det(x)

def linalg_det(x: Tensor) -> Tensor:
    return torch.linalg_det(x)

def slogdet(x: Tensor) -> Tuple[Tensor, Tensor]:
    return torch.slogdet(x)

def linalg_slogdet(x: Tensor) -> Tuple[Tensor, Tensor]:
    return torch.linalg_slogdet(x)

def logdet(x: Tensor) -> Tensor:
    return torch.logdet(x)
)SCRIPT";

inline constexpr const char* kMathCompositesOnCpu = R"SCRIPT(
def linalg_norm__ord_str(x: Tensor, ord: str, dim: Optional[List[int]], keepdim: bool, dtype: Optional[int]) -> Tensor:
    return torch.linalg_norm(x, ord, dim, keepdim, dtype=dtype)
)SCRIPT";

inline constexpr const char* kMathCompositesOnCuda = R"SCRIPT(
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

def index_put__hacked_twin(x: Tensor, indices: List[Tensor], values: Tensor, accumulate: bool) -> Tensor:
    places: List[Optional[Tensor]] = []
    for index in indices:
        places.append(index)
    return torch.index_put(x, places, values, accumulate)

def _unsafe_index_put__hacked_twin(x: Tensor, indices: List[Tensor], values: Tensor, accumulate: bool) -> Tensor:
    return index_put__hacked_twin(x, indices, values, accumulate)

def _unsafe_index_put(x: Tensor, indices: List[Optional[Tensor]], values: Tensor, accumulate: bool) -> Tensor:
    return torch.index_put(x, indices, values, accumulate)

def arctan2(x: Tensor, y: Tensor) -> Tensor:
    return torch.atan2(x, y)

def trace(x: Tensor) -> Tensor:
    return x.diagonal().sum() if x.is_cuda else torch.trace(x)

def linalg_norm(x: Tensor, ord: Optional[number], dim: Optional[List[int]], keepdim: bool, dtype: Optional[int]) -> Tensor:
    return torch.linalg_norm(x, ord, dim, keepdim, dtype=fp32_if_none(x, dtype))

def linalg_norm__ord_str(x: Tensor, ord: str, dim: Optional[List[int]], keepdim: bool, dtype: Optional[int]) -> Tensor:
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
    powers = torch.ones([x.size(0), columns], dtype=torch.promote_types(x.dtype, 4), device=x.device)
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
    assert y.dtype != 11 and x.dtype != 11, "trapezoid: received a bool input for `x` or `y`, but bool is not supported"
    if x.dim() == 1:
        assert x.size(0) == y.size(dim), "trapezoid: There must be one `x` value for each sample point"
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

def cross_entropy_loss(x: Tensor, target: Tensor, weight: Optional[Tensor], reduction: int, ignore_index: int, label_smoothing: float) -> Tensor:
    dim = 0 if x.dim() == 1 else 1
    classes = x.size(dim)
    logs = torch.log_softmax(x, dim, x.dtype)
    weights: Optional[Tensor] = None
    if weight is not None:
        shape = [1 for _ in range(x.dim())]
        shape[dim] = weight.size(0)
        weights = weight.view(shape)
    if x.size() == target.size():
        assert target.is_floating_point(), "Expected floating point type for target with class probabilities"
        assert ignore_index < 0, "ignore_index is not supported for floating point target"
        assert weight is None or (weight.dim() == 1 and weight.numel() == classes), "cross_entropy: weight tensor should be defined either for all classes or no classes"
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
        assert not x.is_complex(), "jit_amp: a convolution of complex tensors with string padding inside autocast cannot be exported"
    if bias is not None:
        bias = lowered(bias)
    return bias

def conv1d__padding(x: Tensor, weight: Tensor, bias: Optional[Tensor], stride: List[int], padding: str, dilation: List[int], groups: int) -> Tensor:
    return torch.conv1d(lowered(x), lowered(weight), lowered_bias(x, bias), stride, padding, dilation, groups)

def conv2d__padding(x: Tensor, weight: Tensor, bias: Optional[Tensor], stride: List[int], padding: str, dilation: List[int], groups: int) -> Tensor:
    return torch.conv2d(lowered(x), lowered(weight), lowered_bias(x, bias), stride, padding, dilation, groups)

def conv3d__padding(x: Tensor, weight: Tensor, bias: Optional[Tensor], stride: List[int], padding: str, dilation: List[int], groups: int) -> Tensor:
    return torch.conv3d(lowered(x), lowered(weight), lowered_bias(x, bias), stride, padding, dilation, groups)

def _convolution_mode(x: Tensor, weight: Tensor, bias: Optional[Tensor], stride: List[int], padding: str, dilation: List[int], groups: int) -> Tensor:
    return torch._convolution_mode(lowered(x), lowered(weight), lowered_bias(x, bias), stride, padding, dilation, groups)

def pinverse(x: Tensor, rcond: float) -> Tensor:
    return torch.linalg_pinv(x, rcond, False)

def check_matrix_exp(x: Tensor):
    if is_eligible_on_cuda(x):
        assert x.dtype == 6, "jit_amp: matrix_exp of a reduced dtype on CUDA inside autocast cannot be exported"

def linalg_matrix_exp(x: Tensor) -> Tensor:
    check_matrix_exp(x)
    return torch.linalg_matrix_exp(x)

def matrix_exp(x: Tensor) -> Tensor:
    check_matrix_exp(x)
    return torch.matrix_exp(x)

def istft(x: Tensor, n_fft: int, hop_length: Optional[int], win_length: Optional[int], window: Optional[Tensor], center: bool, normalized: bool, onesided: Optional[bool], length: Optional[int], return_complex: bool) -> Tensor:
    if window is not None:
        if is_eligible_on_cuda(window) and window.dtype != 6:
            assert x.dtype != 8, "jit_amp: istft of complex32 on CUDA inside autocast cannot be exported"
            window = fp32(window)
    return torch.istft(x, n_fft, hop_length, win_length, window, center, normalized, onesided, length, return_complex)

def _native_multi_head_attention(query: Tensor, key: Tensor, value: Tensor, embed_dim: int, num_head: int, qkv_weight: Tensor, qkv_bias: Tensor, proj_weight: Tensor, proj_bias: Tensor, mask: Optional[Tensor], need_weights: bool, average_attn_weights: bool, mask_type: Optional[int]) -> Tuple[Tensor, Tensor]:
    assert not query.is_cuda, "jit_amp: CUDA's fused attention inside autocast cannot be exported"
    return torch._native_multi_head_attention(query, key, value, embed_dim, num_head, qkv_weight, qkv_bias, proj_weight, proj_bias, mask, need_weights, average_attn_weights, mask_type)

def _transformer_encoder_layer_fwd(src: Tensor, embed_dim: int, num_heads: int, qkv_weight: Tensor, qkv_bias: Tensor, proj_weight: Tensor, proj_bias: Tensor, use_gelu: bool, norm_first: bool, eps: float, norm_weight_1: Tensor, norm_bias_1: Tensor, norm_weight_2: Tensor, norm_bias_2: Tensor, ffn_weight_1: Tensor, ffn_bias_1: Tensor, ffn_weight_2: Tensor, ffn_bias_2: Tensor, mask: Optional[Tensor], mask_type: Optional[int]) -> Tensor:
    assert not src.is_cuda, "jit_amp: CUDA's fused encoder layer inside autocast cannot be exported"
    return torch._transformer_encoder_layer_fwd(src, embed_dim, num_heads, qkv_weight, qkv_bias, proj_weight, proj_bias, use_gelu, norm_first, eps, norm_weight_1, norm_bias_1, norm_weight_2, norm_bias_2, ffn_weight_1, ffn_bias_1, ffn_weight_2, ffn_bias_2, mask, mask_type)
)SCRIPT";

}  // namespace jit_amp
