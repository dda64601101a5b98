# ruff: noqa: B008, E501 (a line a call: a default binds an operator to it)
"""Calls of operators that PyTorch's own samples leave out, for scripts/observe."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch


def samples() -> Iterator[tuple[str, Callable[[], Any]]]:
    """Names and calls."""
    x, w = torch.randn(3, 4), torch.randn(4)
    image, volume = torch.randn(2, 4, 8, 8), torch.randn(2, 4, 4, 4, 4)
    aten = torch.ops.aten

    # In-place activations, and forms that only modules or the tracer call.
    for name in ("relu_", "relu6_", "hardtanh_", "hardswish_", "hardsigmoid_", "silu_", "mish_",
                 "elu_", "celu_", "selu_", "leaky_relu_", "rrelu_", "threshold_", "sigmoid_",
                 "tanh_", "square_", "clamp_min_", "clamp_max_"):  # fmt: skip
        op = getattr(aten, name)
        extra = {"threshold_": (0.1, 0.0), "clamp_min_": (0.0,), "clamp_max_": (0.0,)}.get(name, ())
        yield name, lambda op=op, extra=extra: op(x.clone(), *extra)
    for name in ("dropout", "feature_dropout", "alpha_dropout", "feature_alpha_dropout"):
        for train in (False, True):
            op, written = getattr(aten, name), getattr(aten, name + "_")
            yield name, lambda op=op, train=train: op(image, 0.3, train)
            yield name + "_", lambda op=written, train=train: op(image.clone(), 0.3, train)
    yield "native_dropout", lambda: aten.native_dropout(x, 0.5, True)

    # Factories whose dtype is not given.
    for name in ("zeros", "ones", "rand", "randn", "empty"):
        yield name, lambda op=getattr(aten, name): op([2, 3])
    yield "eye", lambda: aten.eye(3)
    yield "linspace", lambda: aten.linspace(0, 1, 5)
    yield "logspace", lambda: aten.logspace(0, 1, 5)
    yield "hann_window", lambda: aten.hann_window(8)
    yield "hamming_window", lambda: aten.hamming_window(8)
    yield "blackman_window", lambda: aten.blackman_window(8)
    yield "bartlett_window", lambda: aten.bartlett_window(8)
    yield "kaiser_window", lambda: aten.kaiser_window(8)
    yield "tril_indices", lambda: aten.tril_indices(3, 3)
    yield "triu_indices", lambda: aten.triu_indices(3, 3)
    yield "randint", lambda: aten.randint(5, [3])
    yield "randperm", lambda: aten.randperm(5)
    for name in ("zeros_like", "ones_like", "rand_like", "randn_like", "empty_like"):
        yield name, lambda op=getattr(aten, name): op(x)
    yield "full_like", lambda: aten.full_like(x, 1.5)
    yield "randint_like", lambda: aten.randint_like(x, 4)
    yield "new_zeros", lambda: aten.new_zeros(x, [2, 2])
    yield "new_ones", lambda: aten.new_ones(x, [2, 2])
    yield "new_full", lambda: aten.new_full(x, [2, 2], 1.5)
    yield "new_empty", lambda: aten.new_empty(x, [2, 2])

    # Casts and copies.
    for dtype in (torch.float32, torch.bfloat16, torch.int64):
        yield "to.dtype", lambda d=dtype: aten.to.dtype(x, d)
        yield "to.device", lambda d=dtype: aten.to.device(x, torch.device("cpu"), d)
        yield "to.dtype_layout", lambda d=dtype: aten.to.dtype_layout(x, dtype=d)
        yield "to.prim_dtype", lambda d=dtype: aten._to_copy(x, dtype=d)
    yield "to.other", lambda: aten.to.other(x, w)
    yield "to.dtype_layout", lambda: aten.to.dtype_layout(x)
    yield "_to_copy", lambda: aten._to_copy(x)
    yield "type_as", lambda: aten.type_as(x, w)
    yield "copy", lambda: aten.copy(x, x)
    yield "detach", lambda: aten.detach(x)
    yield "detach_", lambda: aten.detach_(x.clone())
    yield "contiguous", lambda: aten.contiguous(x)
    yield "lift_fresh", lambda: aten.lift_fresh(x)
    yield "alias", lambda: aten.alias(x)
    yield "requires_grad_", lambda: x.clone().requires_grad_()
    yield "pin", lambda: aten.is_pinned(x)

    # Sizes, shapes, comparisons.
    yield "size", lambda: (aten.size.int(x, 0), aten.stride.int(x, 0), aten.is_contiguous(x))
    yield "storage_offset", lambda: aten.storage_offset(x)
    yield "is_same_size", lambda: aten.is_same_size(x, x)
    yield "is_set_to", lambda: aten.is_set_to(x, x)
    for name in ("__and__", "__or__", "__xor__", "__iand__", "__ior__", "__ixor__"):
        op = getattr(aten, name)
        for dtype in (torch.bool, torch.int64):
            yield name, lambda op=op, d=dtype: op(x.to(d), x.to(d))
            yield name, lambda op=op, d=dtype: op(x.to(d), 1)
    for name in ("__lshift__", "__rshift__", "__ilshift__", "__irshift__"):
        yield name, lambda op=getattr(aten, name): op(x.to(torch.int64), 1)

    # Linear algebra under its older names.
    square = torch.randn(2, 3, 3)
    for name in ("det", "logdet", "slogdet", "inverse", "matrix_exp", "pinverse", "linalg_det",
                 "linalg_slogdet", "trace", "svd", "qr", "geqrf", "linalg_matrix_exp"):  # fmt: skip
        if hasattr(aten, name):
            yield name, lambda op=getattr(aten, name): op(square[0] if op is aten.trace else square)
    yield "matrix_power", lambda: aten.matrix_power(square, 3)
    yield "matrix_power", lambda: aten.matrix_power(square, -2)
    yield "chain_matmul", lambda: aten.chain_matmul([square[0], square[1], square[0]])
    yield "multi_dot", lambda: aten.linalg_multi_dot([square[0], square[1], square[0]])
    yield "cross", lambda: aten.cross(torch.randn(2, 3), torch.randn(2, 3))
    yield "ger", lambda: aten.ger(w, w)
    yield "lu_solve", lambda: torch.lu_solve(square, *torch.linalg.lu_factor(square))
    yield "frobenius_norm", lambda: aten.frobenius_norm.dim(x, [1], False)
    yield "nuclear_norm", lambda: (aten.nuclear_norm(x), aten.nuclear_norm.dim(x, [0, 1]))
    for p in (1.0, 2.0, 3.0, float("inf")):
        yield "norm", lambda p=p: (aten.norm.Scalar(x, p), aten.norm.ScalarOpt_dim(x, p, [1]))
        yield "norm", lambda p=p: aten.norm.ScalarOpt_dtype(x, p, dtype=torch.float32)
        yield "norm", lambda p=p: aten.norm.ScalarOpt_dim_dtype(x, p, [1], dtype=torch.float32)
        yield "renorm", lambda p=p: aten.renorm(x, p, 0, 1.0)
        yield "norm_except_dim", lambda p=p: aten.norm_except_dim(x, 2, 0)
        yield "native_norm", lambda p=p: aten.native_norm(x, p)

    # Layers.
    yield "fold", lambda: aten.col2im(aten.im2col(image, [2, 2], [1, 1], [0, 0], [1, 1]), [8, 8],
                                      [2, 2], [1, 1], [0, 0], [1, 1])  # fmt: skip
    yield (
        "affine_grid",
        lambda: aten.affine_grid_generator(torch.randn(2, 2, 3), [2, 4, 8, 8], False),
    )
    yield (
        "affine_grid",
        lambda: aten.affine_grid_generator(torch.randn(2, 3, 4), [2, 4, 4, 4, 4], True),
    )
    grid, grid3 = torch.rand(2, 5, 5, 2), torch.rand(2, 3, 3, 3, 3)
    for mode in (0, 1, 2):
        for padding in (0, 1, 2):
            yield (
                "grid_sampler",
                lambda m=mode, p=padding: aten.grid_sampler(image, grid, m, p, False),
            )
            yield (
                "grid_sampler_2d",
                lambda m=mode, p=padding: aten.grid_sampler_2d(image, grid, m, p, True),
            )
            yield (
                "grid_sampler_3d",
                lambda m=mode, p=padding: aten.grid_sampler(volume, grid3, m, p, False),
            )
    yield "pad_sequence", lambda: aten.pad_sequence([x, x[:2]], True, 0.0)
    yield "unsafe_split", lambda: (aten.unsafe_split(x, 2), aten.unsafe_split_with_sizes(x, [1, 2]))
    yield "unsafe_chunk", lambda: (aten.unsafe_chunk(x, 2), aten.chunk(x, 2))
    yield (
        "split.sizes",
        lambda: (aten.split.sizes(x, [1, 2]), aten.split_with_sizes_copy(x, [1, 2])),
    )
    yield "split_copy", lambda: (aten.split_copy.Tensor(x, 2), aten.unbind_copy(x))
    yield "pixel_shuffle", lambda: (aten.pixel_shuffle(image, 2), aten.pixel_unshuffle(image, 2))
    yield (
        "channel_shuffle",
        lambda: (aten.channel_shuffle(image, 2), aten.native_channel_shuffle(image, 2)),
    )
    for affine in (w, None):
        yield "instance_norm", lambda a=affine: aten.instance_norm(
            image, a, a, None, None, True, 0.1, 1e-5, True)  # fmt: skip
        yield "group_norm", lambda a=affine: aten.group_norm(image, 2, a, a)
        yield "layer_norm", lambda a=affine: aten.layer_norm(x, [4], a, a)
        yield "rms_norm", lambda a=affine: aten.rms_norm(x, [4], a)
        yield "batch_norm", lambda a=affine: aten.batch_norm(
            image, a, a, torch.zeros(4), torch.ones(4), False, 0.1, 1e-5, True)  # fmt: skip
        yield "batch_norm", lambda a=affine: aten.batch_norm(
            image, a, a, torch.zeros(4), torch.ones(4), True, 0.1, 1e-5, True)  # fmt: skip
    for name, size, given in (("nearest1d", [5], image[0]), ("nearest2d", [5, 5], image),
                              ("nearest3d", [5, 5, 5], volume)):  # fmt: skip
        for exact in ("upsample_", "_upsample_nearest_exact"):
            full = exact + (name if exact == "upsample_" else name.removeprefix("nearest"))
            op = getattr(aten, full)
            yield full, lambda op=op, g=given, s=size: (op(g, s), op.vec(g, s, None))
    for name, size, given in (("linear1d", [5], image[0]), ("bilinear2d", [5, 5], image),
                              ("bicubic2d", [5, 5], image), ("trilinear3d", [5, 5, 5], volume)):  # fmt: skip
        op = getattr(aten, "upsample_" + name)
        yield name, lambda op=op, g=given, s=size: (op(g, s, False), op.vec(g, s, True, None))
    for name in ("_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa", "_upsample_lanczos2d_aa"):
        if hasattr(aten, name):
            op = getattr(aten, name)
            yield name, lambda op=op: (op(image, [5, 5], False), op.vec(image, [5, 5], False, None))

    # Recurrent layers, and what they are packed with.
    packed, sizes = aten._pack_padded_sequence(torch.randn(5, 2, 4), torch.tensor([5, 3]), False)
    yield "_pack_padded_sequence", lambda: aten._pack_padded_sequence(
        torch.randn(5, 2, 4), torch.tensor([5, 3]), False)  # fmt: skip
    yield "_pad_packed_sequence", lambda: aten._pad_packed_sequence(packed, sizes, True, 0.0, 5)
    h, weights = (
        torch.zeros(1, 2, 4),
        [torch.randn(4, 4), torch.randn(4, 4), torch.randn(4), torch.randn(4)],
    )
    gates = {n: [t.repeat(n, *[1] * (t.dim() - 1)) for t in weights] for n in (1, 3, 4)}
    for name, n in (("rnn_tanh", 1), ("rnn_relu", 1), ("gru", 3)):
        op = getattr(aten, name)
        yield (
            name,
            lambda op=op, n=n: op.input(
                torch.randn(5, 2, 4), h, gates[n], True, 1, 0.0, False, False, False
            ),
        )
        yield (
            name,
            lambda op=op, n=n: op.data(packed, sizes, h, gates[n], True, 1, 0.0, False, False),
        )
    yield "lstm", lambda: aten.lstm.input(
        torch.randn(5, 2, 4), [h, h], gates[4], True, 1, 0.0, False, False, False)  # fmt: skip
    yield (
        "lstm",
        lambda: aten.lstm.data(packed, sizes, [h, h], gates[4], True, 1, 0.0, False, False),
    )
    for name, n in (("rnn_tanh_cell", 1), ("rnn_relu_cell", 1), ("gru_cell", 3)):
        yield name, lambda op=getattr(aten, name), n=n: op(x, torch.zeros(3, 4), *gates[n])
    yield "lstm_cell", lambda: aten.lstm_cell(x, [torch.zeros(3, 4), torch.zeros(3, 4)], *gates[4])

    # Attention and transformers, whole.
    tokens, wide = (
        torch.randn(2, 3, 8),
        [torch.randn(24, 8), torch.randn(24), torch.randn(8, 8), torch.randn(8)],
    )
    for mask, average in ((None, True), (torch.zeros(2, 3, dtype=torch.bool), False)):
        yield "_native_multi_head_attention", lambda m=mask, a=average: aten._native_multi_head_attention(
            tokens, tokens, tokens, 8, 2, *wide, m, a, a, None if m is None else 1)  # fmt: skip
        yield "_transformer_encoder_layer_fwd", lambda m=mask, a=average: aten._transformer_encoder_layer_fwd(
            tokens, 8, 2, *wide, a, a, 1e-5, torch.ones(8), torch.zeros(8), torch.ones(8), torch.zeros(8),
            torch.randn(16, 8), torch.randn(16), torch.randn(8, 16), torch.randn(8), m,
            None if m is None else 1)  # fmt: skip
    # A transformer's padding: the first tokens of each row are there.
    for mask in (torch.ones(2, 3, dtype=torch.bool), torch.tensor([[True, True, False]] * 2)):
        yield "_nested_tensor_from_mask_left_aligned", lambda m=mask: (
            aten._nested_tensor_from_mask_left_aligned(tokens, m))  # fmt: skip
        yield "_nested_tensor_from_mask", lambda m=mask: aten._nested_tensor_from_mask(tokens, m)
    # Quantization-aware training.
    scales, zeros = torch.full((3,), 0.1), torch.zeros(3, dtype=torch.int32)
    yield "fake_quantize_per_channel_affine", lambda: aten.fake_quantize_per_channel_affine(
        x, scales, zeros, 0, -8, 7)  # fmt: skip
    yield "fake_quantize_per_tensor_affine", lambda: (
        aten.fake_quantize_per_tensor_affine.tensor_qparams(x, scales[:1], zeros[:1], -8, 7))  # fmt: skip
    yield "einsum.sublist", lambda: aten.einsum.sublist(x, [0, 1], x, [1, 2])
    yield "_addmm_activation", lambda: aten._addmm_activation(torch.randn(5), x, torch.randn(4, 5))
    yield "_transform_bias_rescale_qkv", lambda: aten._transform_bias_rescale_qkv(
        torch.randn(2, 3, 24), torch.randn(24), 2)  # fmt: skip
    yield "_masked_softmax", lambda: aten._masked_softmax(x, x > 0)
    yield "_euclidean_dist", lambda: aten._euclidean_dist(x, x)
    yield "conv_tbc", lambda: aten.conv_tbc(torch.randn(5, 2, 4), torch.randn(3, 4, 4), w)
    yield "_weight_norm", lambda: aten._weight_norm(x, torch.rand(3, 1), 0)
    yield "_weight_norm of dimension 1", lambda: aten._weight_norm(
        torch.rand(2, 3, 4), torch.rand(1, 3, 1), 1)  # fmt: skip
    yield "_weight_norm_interface", lambda: aten._weight_norm_interface(x, torch.rand(3, 1), 0)
    yield "split_with_sizes_copy", lambda: aten.chunk(x, 3, 1)
    yield "fft_fftfreq", lambda: (aten.fft_fftfreq(8), aten.fft_rfftfreq(8))
    yield "fill_diagonal_", lambda: aten.fill_diagonal_(x.clone(), 1.0)
    yield "_is_all_true", lambda: (aten._is_all_true(x > 0), aten._is_any_true(x > 0))

    # Signals, statistics, random numbers.
    window = torch.hann_window(8)
    yield "stft", lambda: aten.stft(torch.randn(2, 32), 8, 4, 8, window, False, True, True)
    yield "istft", lambda: aten.istft(
        torch.stft(torch.randn(2, 32), 8, window=window, return_complex=True), 8, None, None, window)  # fmt: skip
    yield "vander", lambda: (aten.vander(w), aten.linalg_vander(w))
    yield "gradient", lambda: aten.gradient.tensorarrayint(x[:, 0], [x[:, 0]], dim=[0])
    yield "histogramdd", lambda: aten.histogramdd.int_bins(x, 3)
    yield "cov", lambda: (aten.cov(x), aten.corrcoef(x))
    yield "poisson", lambda: aten.poisson(torch.rand(3, 4))
    yield "binomial", lambda: aten.binomial(torch.full((3,), 5.0), torch.rand(3))
    yield "bernoulli", lambda: (aten.bernoulli(torch.rand(3)), aten.bernoulli.p(x, 0.5))
    yield "multinomial", lambda: aten.multinomial(torch.rand(2, 4), 2)
    yield "normal", lambda: (aten.normal.Tensor_float(x), aten.normal.float_float(0.0, 1.0, [3]))
    yield "_standard_gamma", lambda: aten._standard_gamma(torch.rand(3))
    for name in ("uniform_", "normal_", "exponential_", "cauchy_", "log_normal_", "random_"):
        yield name, lambda op=getattr(aten, name): op(x.clone())
    yield "geometric_", lambda: aten.geometric_(x.clone(), 0.5)
    yield "bernoulli_", lambda: aten.bernoulli_.float(x.clone(), 0.5)
    yield (
        "random_",
        lambda: (aten.random_.to(x.clone(), 5), getattr(aten.random_, "from")(x.clone(), 0, 5)),
    )

    # Indexing as scripts have it.
    index = torch.tensor([0, 1])
    yield "index", lambda: (aten.index.Tensor(x, [index]), aten.index.Tensor(x, [None, index]))
    yield "hacked", lambda: (aten.index.Tensor_hacked_twin(x, [index]),
                             aten.index_put_.hacked_twin(x.clone(), [index], x[:2]),
                             aten.index_put.hacked_twin(x, [index], x[:2]),
                             aten._index_put_impl_.hacked_twin(x.clone(), [index], x[:2]),
                             aten._unsafe_index.Tensor(x, [index]))  # fmt: skip
    yield (
        "index_put",
        lambda: (aten.index_put(x, [index], x[:2]), aten.index_put_(x.clone(), [index], x[:2])),
    )
    yield "embedding_bag", lambda: aten.embedding_bag(x, index, torch.tensor([0]))
    yield "embedding_renorm_", lambda: aten.embedding_renorm_(x.clone(), index, 1.0, 2.0)
    yield "one_hot", lambda: aten.one_hot(index, 3)
    yield "bincount", lambda: (aten.bincount(index), aten.nonzero_numpy(x), aten.argwhere(x))
    yield "masked_fill_", lambda: aten.masked_fill_.Scalar(x.clone(), x > 0, 1.0)
    yield "masked_scatter_", lambda: aten.masked_scatter_(x.clone(), x > 0, x)
    yield "fill_", lambda: (aten.fill_.Scalar(x.clone(), 1.0), aten.zero_(x.clone()))
    yield (
        "scatter_",
        lambda: aten.scatter_.value(x.clone(), 1, torch.zeros(3, 1, dtype=torch.int64), 1.0),
    )
    yield "swap", lambda: (aten.swapaxes(x, 0, 1), aten.moveaxis.int(x, 0, 1), aten.numpy_T(x))
    yield "unflatten", lambda: (aten.unflatten.int(x, 1, [2, 2]), aten.flatten.using_ints(image))
    yield (
        "square",
        lambda: (aten.square(x), aten.ldexp.Tensor(x, x), aten.float_power.Tensor_Scalar(x, 2)),
    )
    yield "_safe_softmax", lambda: aten._safe_softmax(x, -1)
