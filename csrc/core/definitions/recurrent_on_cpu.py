# Recurrent networks and cells. On CPU: mirrors aten/src/ATen/native/RNN.cpp, and what
# aten/src/ATen/native/mkldnn/RNN.cpp does with an LSTM's operands.
#
# `kind` is 0 for an RNN with tanh, 1 for one with relu, 2 for a GRU and 3 for an LSTM, whose state
# is h and c; the others' c is of no meaning.


def check_on_cpu(x: Tensor):
    assert not x.is_cuda, (
        "jit_amp: a recurrent network that was exported inside autocast for CPU takes tensors on CPU: on CUDA eager runs other code"
    )


def outside_stack(xs: List[Tensor]) -> Tensor:
    # For tensors that are all of one dtype, so that autocast has nothing to promote.
    return torch.stack(xs, 0)


def outside_cat(xs: List[Tensor], dim: int) -> Tensor:
    return torch.cat(xs, dim)


def cell(
    kind: int,
    gates: Tensor,
    h: Tensor,
    c: Tensor,
    w_hh: Tensor,
    b_hh: Optional[Tensor],
    w_hr: Optional[Tensor],
) -> Tuple[Tensor, Tensor]:
    hidden = torch.linear(h, w_hh, b_hh)
    n = w_hh.size(0) // (4 if kind == 3 else 3)
    if kind == 3:
        hidden = hidden.add_(gates)
        input_gate = hidden.narrow(1, 0, n).sigmoid()
        forget_gate = hidden.narrow(1, n, n).sigmoid()
        cell_gate = hidden.narrow(1, 2 * n, n).tanh()
        output_gate = hidden.narrow(1, 3 * n, n).sigmoid()
        c = (forget_gate * c).add_(input_gate * cell_gate)
        h = output_gate * c.tanh()
        if w_hr is not None:
            h = torch.matmul(h, w_hr.t())
    elif kind == 2:
        reset_gate = hidden.narrow(1, 0, n).add_(gates.narrow(1, 0, n)).sigmoid()
        update_gate = hidden.narrow(1, n, n).add_(gates.narrow(1, n, n)).sigmoid()
        new_gate = gates.narrow(1, 2 * n, n).add(hidden.narrow(1, 2 * n, n).mul_(reset_gate)).tanh()
        h = (h - new_gate).mul_(update_gate).add_(new_gate)
    elif kind == 1:
        h = torch.relu(hidden.add_(gates))
    else:
        h = torch.tanh(hidden.add_(gates))
    return h, c


def steps(
    kind: int,
    inputs: Tensor,
    h: Tensor,
    c: Tensor,
    w_hh: Tensor,
    b_hh: Optional[Tensor],
    w_hr: Optional[Tensor],
    reverse: bool,
) -> Tuple[Tensor, Tensor, Tensor]:
    outputs: List[Tensor] = []
    n = inputs.size(0)
    for t in range(n):
        gates = inputs[n - 1 - t] if reverse else inputs[t]
        h, c = cell(kind, gates, h, c, w_hh, b_hh, w_hr)
        outputs.append(h)
    if reverse:
        outputs.reverse()
    return outside_stack(outputs), h, c


def packed_steps(
    kind: int,
    inputs: Tensor,
    batch_sizes: Tensor,
    h: Tensor,
    c: Tensor,
    w_hh: Tensor,
    b_hh: Optional[Tensor],
    w_hr: Optional[Tensor],
) -> Tuple[Tensor, Tensor, Tensor]:
    outputs: List[Tensor] = []
    done_h: List[Tensor] = []
    done_c: List[Tensor] = []
    start = 0
    last = int(batch_sizes[0])
    for t in range(batch_sizes.size(0)):
        n = int(batch_sizes[t])
        if n < last:
            done_h.append(h.narrow(0, n, last - n))
            h = h.narrow(0, 0, n)
            if kind == 3:
                done_c.append(c.narrow(0, n, last - n))
                c = c.narrow(0, 0, n)
        last = n
        h, c = cell(kind, inputs.narrow(0, start, n), h, c, w_hh, b_hh, w_hr)
        start += n
        outputs.append(h)
    done_h.append(h)
    done_h.reverse()
    h = outside_cat(done_h, 0)
    if kind == 3:
        done_c.append(c)
        done_c.reverse()
        c = outside_cat(done_c, 0)
    return outside_cat(outputs, 0), h, c


def packed_steps_back(
    kind: int,
    inputs: Tensor,
    batch_sizes: Tensor,
    h0: Tensor,
    c0: Tensor,
    w_hh: Tensor,
    b_hh: Optional[Tensor],
    w_hr: Optional[Tensor],
) -> Tuple[Tensor, Tensor, Tensor]:
    outputs: List[Tensor] = []
    end = inputs.size(0)
    steps = batch_sizes.size(0)
    last = int(batch_sizes[steps - 1])
    h = h0.narrow(0, 0, last)
    c = c0
    if kind == 3:
        c = c0.narrow(0, 0, last)
    for t in range(steps):
        n = int(batch_sizes[steps - 1 - t])
        if n > last:
            h = torch.cat([h, h0.narrow(0, last, n - last)], 0)
            if kind == 3:
                c = torch.cat([c, c0.narrow(0, last, n - last)], 0)
        last = n
        h, c = cell(kind, inputs.narrow(0, end - n, n), h, c, w_hh, b_hh, w_hr)
        end -= n
        outputs.append(h)
    outputs.reverse()
    return outside_cat(outputs, 0), h, c


def layers(
    kind: int,
    x: Tensor,
    batch_sizes: Optional[Tensor],
    hx: Tensor,
    cx: Tensor,
    params: List[Tensor],
    has_biases: bool,
    projects: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
) -> Tuple[Tensor, Tensor, Tensor]:
    check_on_cpu(x)
    directions = 2 if bidirectional else 1
    per = (4 if has_biases else 2) + (1 if projects else 0)
    last_h: List[Tensor] = []
    last_c: List[Tensor] = []
    for layer in range(num_layers):
        results: List[Tensor] = []
        for direction in range(directions):
            k = layer * directions + direction
            b_ih: Optional[Tensor] = None
            b_hh: Optional[Tensor] = None
            w_hr: Optional[Tensor] = None
            if has_biases:
                b_ih = params[k * per + 2]
                b_hh = params[k * per + 3]
            if projects:
                w_hr = params[k * per + per - 1]
            w_hh = params[k * per + 1]
            inputs = torch.linear(x, params[k * per], b_ih)
            # An RNN's state is an operand of `linear` and of nothing else.
            h0 = lowered(hx[k]) if kind < 2 else hx[k]
            if batch_sizes is None:
                out, h, c = steps(kind, inputs, h0, cx[k], w_hh, b_hh, w_hr, direction == 1)
            elif direction == 0:
                out, h, c = packed_steps(kind, inputs, batch_sizes, h0, cx[k], w_hh, b_hh, w_hr)
            else:
                out, h, c = packed_steps_back(
                    kind, inputs, batch_sizes, h0, cx[k], w_hh, b_hh, w_hr
                )
            results.append(out)
            last_h.append(h)
            last_c.append(c)
        x = outside_cat(results, -1) if bidirectional else results[0]
        if dropout != 0.0 and train and layer < num_layers - 1:
            x = torch.dropout(x, dropout, True)
    h = outside_stack(last_h)
    return x, h, outside_stack(last_c) if kind == 3 else h


def of_a_tensor(
    kind: int,
    x: Tensor,
    hx: Tensor,
    cx: Tensor,
    params: List[Tensor],
    has_biases: bool,
    projects: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> Tuple[Tensor, Tensor, Tensor]:
    if batch_first:
        x = x.transpose(0, 1)
    y, h, c = layers(
        kind,
        x,
        None,
        hx,
        cx,
        params,
        has_biases,
        projects,
        num_layers,
        dropout,
        train,
        bidirectional,
    )
    if batch_first:
        y = y.transpose(0, 1)
    return y, h, c


def rnn_tanh__input(
    x: Tensor,
    hx: Tensor,
    params: List[Tensor],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> Tuple[Tensor, Tensor]:
    y, h, _ = of_a_tensor(
        0,
        x,
        hx,
        hx,
        params,
        has_biases,
        False,
        num_layers,
        dropout,
        train,
        bidirectional,
        batch_first,
    )
    return y, h


def rnn_relu__input(
    x: Tensor,
    hx: Tensor,
    params: List[Tensor],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> Tuple[Tensor, Tensor]:
    y, h, _ = of_a_tensor(
        1,
        x,
        hx,
        hx,
        params,
        has_biases,
        False,
        num_layers,
        dropout,
        train,
        bidirectional,
        batch_first,
    )
    return y, h


def gru__input(
    x: Tensor,
    hx: Tensor,
    params: List[Tensor],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> Tuple[Tensor, Tensor]:
    y, h, _ = of_a_tensor(
        2,
        x,
        hx,
        hx,
        params,
        has_biases,
        False,
        num_layers,
        dropout,
        train,
        bidirectional,
        batch_first,
    )
    return y, h


def rnn_tanh__data(
    x: Tensor,
    batch_sizes: Tensor,
    hx: Tensor,
    params: List[Tensor],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
) -> Tuple[Tensor, Tensor]:
    y, h, _ = layers(
        0,
        x,
        batch_sizes,
        hx,
        hx,
        params,
        has_biases,
        False,
        num_layers,
        dropout,
        train,
        bidirectional,
    )
    return y, h


def rnn_relu__data(
    x: Tensor,
    batch_sizes: Tensor,
    hx: Tensor,
    params: List[Tensor],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
) -> Tuple[Tensor, Tensor]:
    y, h, _ = layers(
        1,
        x,
        batch_sizes,
        hx,
        hx,
        params,
        has_biases,
        False,
        num_layers,
        dropout,
        train,
        bidirectional,
    )
    return y, h


def gru__data(
    x: Tensor,
    batch_sizes: Tensor,
    hx: Tensor,
    params: List[Tensor],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
) -> Tuple[Tensor, Tensor]:
    y, h, _ = layers(
        2,
        x,
        batch_sizes,
        hx,
        hx,
        params,
        has_biases,
        False,
        num_layers,
        dropout,
        train,
        bidirectional,
    )
    return y, h


def projects(params: List[Tensor], has_biases: bool, num_layers: int, bidirectional: bool) -> bool:
    return len(params) == num_layers * (2 if bidirectional else 1) * (5 if has_biases else 3)


def check_dtype(x: Tensor, lower: int):
    assert x.dtype == 6 or x.dtype == lower, (
        "jit_amp: an exported LSTM inside autocast takes an input of float32 or of the scope's dtype: for others it depends on the machine what eager runs. Cast the input to one of them"
    )


def lstm__input(
    x: Tensor,
    hx: List[Tensor],
    params: List[Tensor],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> Tuple[Tensor, Tensor, Tensor]:
    with_projections = projects(params, has_biases, num_layers, bidirectional)
    if has_onednn() and not with_projections and params[0].dtype != 7:
        lower = torch.get_autocast_dtype("cpu")
        check_dtype(x, lower)
        assert hx[1].dtype == lower or (
            x.numel() != 0 and (x.dtype == 6 or onednn_takes_lower())
        ), (
            "jit_amp: an exported LSTM inside autocast gives results of the scope's dtype. Eager's are of another one where the input is empty, or where oneDNN has no LSTM of the scope's dtype: cast the initial state to the scope's dtype"
        )
        return torch.lstm(
            lowered(x),
            [lowered(hx[0]), lowered(hx[1])],
            [lowered(w) for w in params],
            has_biases,
            num_layers,
            dropout,
            train,
            bidirectional,
            batch_first,
        )
    else:
        return of_a_tensor(
            3,
            x,
            hx[0],
            hx[1],
            params,
            has_biases,
            with_projections,
            num_layers,
            dropout,
            train,
            bidirectional,
            batch_first,
        )


def lstm__data(
    x: Tensor,
    batch_sizes: Tensor,
    hx: List[Tensor],
    params: List[Tensor],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
) -> Tuple[Tensor, Tensor, Tensor]:
    with_projections = projects(params, has_biases, num_layers, bidirectional)
    on_onednn = False
    if onednn_unpacks() and not with_projections and params[0].dtype != 7:
        check_dtype(x, torch.get_autocast_dtype("cpu"))
        all_of_one_length = int(batch_sizes[0]) == int(batch_sizes[-1])
        on_onednn = all_of_one_length and x.numel() != 0 and (x.dtype == 6 or onednn_takes_lower())
    if on_onednn:
        steps = batch_sizes.size(0)
        y, h, c = torch.lstm(
            lowered(x.reshape([steps, -1, x.size(1)])),
            [lowered(hx[0]), lowered(hx[1])],
            [lowered(w) for w in params],
            has_biases,
            num_layers,
            dropout,
            train,
            bidirectional,
            False,
        )
        y = y.reshape([x.size(0), -1])
    else:
        y, h, c = layers(
            3,
            x,
            batch_sizes,
            hx[0],
            hx[1],
            params,
            has_biases,
            with_projections,
            num_layers,
            dropout,
            train,
            bidirectional,
        )
    return y, h, c


def lstm_cell(
    x: Tensor,
    hx: List[Tensor],
    w_ih: Tensor,
    w_hh: Tensor,
    b_ih: Optional[Tensor],
    b_hh: Optional[Tensor],
) -> Tuple[Tensor, Tensor]:
    check_on_cpu(x)
    return cell(3, torch.linear(x, w_ih, b_ih), hx[0], hx[1], w_hh, b_hh, None)


def gru_cell(
    x: Tensor, h: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Optional[Tensor], b_hh: Optional[Tensor]
) -> Tensor:
    check_on_cpu(x)
    return cell(2, torch.linear(x, w_ih, b_ih), h, h, w_hh, b_hh, None)[0]


def rnn_tanh_cell(
    x: Tensor, h: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Optional[Tensor], b_hh: Optional[Tensor]
) -> Tensor:
    check_on_cpu(x)
    return cell(0, torch.linear(x, w_ih, b_ih), h, h, w_hh, b_hh, None)[0]


def rnn_relu_cell(
    x: Tensor, h: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Optional[Tensor], b_hh: Optional[Tensor]
) -> Tensor:
    check_on_cpu(x)
    return cell(1, torch.linear(x, w_ih, b_ih), h, h, w_hh, b_hh, None)[0]
