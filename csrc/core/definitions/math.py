# Mathematics: what composite operators do with ATen's, from what the installed PyTorch was seen to
# call. Also in aten/src/ATen/native: LinearAlgebra.cpp, Correlation.cpp, AffineGridGenerator.cpp,
# Integration.cpp, LossNLL.cpp. A number in a dtype's place is one of c10/core/ScalarType.h: 4 is
# int64, 6 float32, 7 float64, 8 to 10 complex, 11 bool.
#
# Where a definition is the operator itself, on operands that are cast or not, that is all that
# autocast does: what it calls inside casts no more.
#
# These hold on every device.


def linalg_matmul(x: Tensor, y: Tensor) -> Tensor:
    return torch.matmul(x, y)


def bits_of(n: int) -> List[bool]:
    bits: List[bool] = []
    while n > 0:
        bits.append(n % 2 == 1)
        n = n // 2
    return bits


def linalg_matrix_power(x: Tensor, n: int) -> Tensor:
    assert x.dim() >= 2 and x.size(-1) == x.size(-2), (
        "linalg.matrix_power: A must be batches of square matrices"
    )
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


def cov(
    x: Tensor, correction: int, fweights: Optional[Tensor], aweights: Optional[Tensor]
) -> Tensor:
    assert x.dim() <= 2, "cov(): expected input to have two or fewer dimensions"
    assert x.dtype != 11, "cov(): bool dtype is not supported for input"
    if x.dim() < 2:
        x = x.view([1, -1])
    count = x.size(1)
    weights: Optional[Tensor] = None
    if fweights is not None:
        assert fweights.dim() <= 1 and fweights.numel() == count, (
            "cov(): expected one of fweights for each observation"
        )
        assert not (
            fweights.is_floating_point() or fweights.is_complex() or fweights.dtype == 11
        ), "cov(): expected fweights to have integral dtype"
        assert count == 0 or bool(fweights.min() >= 0), "cov(): fweights cannot be negative"
        weights = fweights
    if aweights is not None:
        assert aweights.dim() <= 1 and aweights.numel() == count, (
            "cov(): expected one of aweights for each observation"
        )
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
    assert x.dim() >= 2 and (x.dtype == 6 or x.dtype == 7 or x.dtype == 9 or x.dtype == 10), (
        "linalg.pinv: expected a tensor with 2 or more dimensions of float, double, cfloat or cdouble types"
    )
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


def linalg_pinv__atol_rtol_tensor(
    x: Tensor, atol: Optional[Tensor], rtol: Optional[Tensor], hermitian: bool
) -> Tensor:
    if rtol is not None:
        relative = rtol
    else:
        relative = torch.full(
            [], smallest_step(x) * max(x.size(-1), x.size(-2)), dtype=7, device=x.device
        )
        if atol is not None:
            relative = torch.where(atol > 0, torch.zeros([], dtype=7, device=x.device), relative)
    absolute = torch.zeros([], dtype=7, device=x.device) if atol is None else atol
    assert not absolute.is_complex() and not relative.is_complex(), (
        "torch.linalg.pinv: tolerances must not be complex"
    )
    return pseudoinverse(x, absolute, relative, hermitian)


def linalg_pinv__atol_rtol_float(
    x: Tensor, atol: Optional[float], rtol: Optional[float], hermitian: bool
) -> Tensor:
    absolute = 0.0 if atol is None else atol
    relative = smallest_step(x) * max(x.size(-1), x.size(-2))
    if rtol is not None:
        relative = rtol
    elif absolute > 0.0:
        relative = 0.0
    return pseudoinverse(
        x,
        torch.full([], absolute, dtype=7, device=x.device),
        torch.full([], relative, dtype=7, device=x.device),
        hermitian,
    )


def linalg_pinv(x: Tensor, rcond: float, hermitian: bool) -> Tensor:
    return linalg_pinv__atol_rtol_float(x, 0.0, rcond, hermitian)


def linalg_pinv__rcond_tensor(x: Tensor, rcond: Tensor, hermitian: bool) -> Tensor:
    return linalg_pinv__atol_rtol_tensor(
        x, torch.zeros([], dtype=7, device=x.device), rcond, hermitian
    )


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
