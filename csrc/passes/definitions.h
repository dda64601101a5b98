// Operators in terms of others, in TorchScript.
//
// kDefinitions: what jit_amp's own operators mean; seal puts it in their place. They mirror
// ATen/autocast_mode.h: is_eligible, cached_cast, promote_type, set_opt_dtype, fp32_append_dtype. A
// dtype is a number there: 6 is float32, 7 is float64 (c10/core/ScalarType.h).
//
// kComposites: what composite operators of ATen do, as far as autocast can see it; decompose puts
// it in their place. They mirror aten/src/ATen/native/RNN.cpp (the path for CPU without oneDNN),
// PadNd.cpp, LossNLL.cpp and transformers/transformer.cpp.
#pragma once

namespace jit_amp {

inline constexpr const char* kDefinitions = R"SCRIPT(
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
            assert result == 6 or x.dtype == lower, "Unexpected floating ScalarType in at::autocast::prioritize"
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

def norm_Scalar(x: Tensor, p: float) -> Tensor:
    if eligible(x) & x.is_cuda:
        return torch.norm(x, p, dtype=6)
    return torch.norm(x, p)

def norm_ScalarOpt_dim(x: Tensor, p: Optional[float], dim: List[int], keepdim: bool) -> Tensor:
    if eligible(x) & x.is_cuda:
        return torch.norm(x, p, dim, keepdim, dtype=6)
    return torch.norm(x, p, dim, keepdim)

def known_device(name: str):
    assert name == "cpu" or name == "cuda", "jit_amp: a scripted torch.autocast whose device_type is known at run time can be for 'cpu' or 'cuda'"
)SCRIPT";

inline constexpr const char* kComposites = R"SCRIPT(
def steps(kind: int, inputs: Tensor, h: Tensor, w_hh: Tensor, b_hh: Optional[Tensor], reverse: bool) -> Tuple[Tensor, Tensor]:
    outputs: List[Tensor] = []
    n = inputs.size(0)
    for t in range(n):
        gates = inputs[n - 1 - t] if reverse else inputs[t]
        hidden = torch.linear(h, w_hh, b_hh)
        if kind == 2:
            igates = gates.unsafe_chunk(3, 1)
            hgates = hidden.unsafe_chunk(3, 1)
            reset_gate = torch.sigmoid(hgates[0] + igates[0])
            input_gate = torch.sigmoid(hgates[1] + igates[1])
            new_gate = torch.tanh(igates[2] + hgates[2] * reset_gate)
            h = (h - new_gate) * input_gate + new_gate
        elif kind == 1:
            h = torch.relu(hidden + gates)
        else:
            h = torch.tanh(hidden + gates)
        outputs.append(h)
    if reverse:
        outputs.reverse()
    return torch.stack(outputs, 0), h

def recurrent(kind: int, x: Tensor, hx: Tensor, params: List[Tensor], has_biases: bool, num_layers: int, dropout: float, train: bool, bidirectional: bool, batch_first: bool) -> Tuple[Tensor, Tensor]:
    assert not (train and dropout > 0.0), "jit_amp: dropout between the layers of a recurrent network cannot be exported"
    if batch_first:
        x = x.transpose(0, 1)
    hiddens: List[Tensor] = []
    directions = 2 if bidirectional else 1
    per = 4 if has_biases else 2
    for layer in range(num_layers):
        results: List[Tensor] = []
        for direction in range(directions):
            k = layer * directions + direction
            b_ih: Optional[Tensor] = None
            b_hh: Optional[Tensor] = None
            if has_biases:
                b_ih = params[k * per + 2]
                b_hh = params[k * per + 3]
            inputs = torch.linear(x, params[k * per], b_ih)
            out, h = steps(kind, inputs, hx[k], params[k * per + 1], b_hh, direction == 1)
            results.append(out)
            hiddens.append(h)
        if bidirectional:
            x = torch.cat(results, results[0].dim() - 1)
        else:
            x = results[0]
    if batch_first:
        x = x.transpose(0, 1)
    return x, torch.stack(hiddens, 0)

def rnn_tanh(x: Tensor, hx: Tensor, params: List[Tensor], has_biases: bool, num_layers: int, dropout: float, train: bool, bidirectional: bool, batch_first: bool) -> Tuple[Tensor, Tensor]:
    return recurrent(0, x, hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_first)

def rnn_relu(x: Tensor, hx: Tensor, params: List[Tensor], has_biases: bool, num_layers: int, dropout: float, train: bool, bidirectional: bool, batch_first: bool) -> Tuple[Tensor, Tensor]:
    return recurrent(1, x, hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_first)

def gru(x: Tensor, hx: Tensor, params: List[Tensor], has_biases: bool, num_layers: int, dropout: float, train: bool, bidirectional: bool, batch_first: bool) -> Tuple[Tensor, Tensor]:
    return recurrent(2, x, hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_first)

def pad(x: Tensor, padding: List[int], mode: str, value: Optional[float]) -> Tensor:
    if mode == "constant":
        if value is None:
            return torch.constant_pad_nd(x, padding, 0)
        return torch.constant_pad_nd(x, padding, value)
    if mode == "circular":
        return torch._pad_circular(x, padding)
    if mode == "reflect":
        if len(padding) == 2:
            return torch.reflection_pad1d(x, padding)
        if len(padding) == 4:
            return torch.reflection_pad2d(x, padding)
        return torch.reflection_pad3d(x, padding)
    if len(padding) == 2:
        return torch.replication_pad1d(x, padding)
    if len(padding) == 4:
        return torch.replication_pad2d(x, padding)
    return torch.replication_pad3d(x, padding)

def nll_loss_nd(x: Tensor, target: Tensor, weight: Optional[Tensor], reduction: int, ignore_index: int) -> Tensor:
    if x.dim() <= 2:
        return torch.nll_loss(x, target, weight, reduction, ignore_index)
    if x.dim() == 4:
        return torch.nll_loss2d(x, target, weight, reduction, ignore_index)
    flat = torch.nll_loss2d(x.reshape(x.size(0), x.size(1), 1, -1), target.reshape(x.size(0), 1, -1), weight, reduction, ignore_index)
    if reduction == 0:
        return flat.reshape(target.size())
    return flat

def _transformer_encoder_layer_fwd(src: Tensor, embed_dim: int, num_heads: int, qkv_weight: Tensor, qkv_bias: Tensor, proj_weight: Tensor, proj_bias: Tensor, use_gelu: bool, norm_first: bool, eps: float, norm_weight_1: Tensor, norm_bias_1: Tensor, norm_weight_2: Tensor, norm_bias_2: Tensor, ffn_weight_1: Tensor, ffn_bias_1: Tensor, ffn_weight_2: Tensor, ffn_bias_2: Tensor, mask: Optional[Tensor], mask_type: Optional[int]) -> Tensor:
    x = src
    if norm_first:
        x = torch.layer_norm(x, [embed_dim], norm_weight_1, norm_bias_1, eps, True)
    x = torch._native_multi_head_attention(x, x, x, embed_dim, num_heads, qkv_weight, qkv_bias, proj_weight, proj_bias, mask, False, True, mask_type)[0]
    x = x.add_(src)
    if not norm_first:
        x = torch.layer_norm(x, [embed_dim], norm_weight_1, norm_bias_1, eps, True)
    residual = x
    if norm_first:
        x = torch.layer_norm(x, [embed_dim], norm_weight_2, norm_bias_2, eps, True)
    rows = x.reshape(x.size(0) * x.size(1), x.size(2))
    rows = torch._addmm_activation(ffn_bias_1, rows, ffn_weight_1.t(), beta=1, alpha=1, use_gelu=use_gelu)
    x = torch.linear(rows, ffn_weight_2, ffn_bias_2).reshape(x.size(0), x.size(1), -1)
    x = x.add_(residual)
    if not norm_first:
        x = torch.layer_norm(x, [embed_dim], norm_weight_2, norm_bias_2, eps, True)
    return x

def check_onednn(x: Tensor, dtype: int):
    assert x.dtype == 6 or x.dtype == dtype, "jit_amp: an exported LSTM inside autocast takes float32 or the scope's dtype, for which eager runs oneDNN's: cast its input to one of them"

def check_contracted(x: Tensor, dim: int):
    assert x.size(dim) != 1, "jit_amp: an exported einsum does not know autocast's rule for a summed dimension of size 1"
)SCRIPT";

}  // namespace jit_amp
