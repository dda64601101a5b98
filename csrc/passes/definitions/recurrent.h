// Recurrent networks on CPU, without oneDNN: mirrors aten/src/ATen/native/RNN.cpp.
#pragma once

namespace jit_amp {

inline constexpr const char* kRecurrentCompositesOnCpu = R"SCRIPT(
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

def rnn_tanh__input(x: Tensor, hx: Tensor, params: List[Tensor], has_biases: bool, num_layers: int, dropout: float, train: bool, bidirectional: bool, batch_first: bool) -> Tuple[Tensor, Tensor]:
    return recurrent(0, x, hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_first)

def rnn_relu__input(x: Tensor, hx: Tensor, params: List[Tensor], has_biases: bool, num_layers: int, dropout: float, train: bool, bidirectional: bool, batch_first: bool) -> Tuple[Tensor, Tensor]:
    return recurrent(1, x, hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_first)

def gru__input(x: Tensor, hx: Tensor, params: List[Tensor], has_biases: bool, num_layers: int, dropout: float, train: bool, bidirectional: bool, batch_first: bool) -> Tuple[Tensor, Tensor]:
    return recurrent(2, x, hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_first)

def check_onednn(x: Tensor, dtype: int):
    assert x.dtype == 6 or x.dtype == dtype, "jit_amp: an exported LSTM inside autocast takes float32 or the scope's dtype, for which eager runs oneDNN's: cast its input to one of them"
)SCRIPT";

}  // namespace jit_amp
