# Recurrent networks and cells on CUDA: the operands cast, all of them. Where cuDNN runs the network
# they are cast to float16, whatever the scope's dtype is: ATen/cudnn/AutocastRNN.cpp. Where it does
# not, to the scope's dtype, as CUDA's list has it for linear, matmul and the fused cells. It is the
# input's dtype before the cast that decides whether cuDNN runs.


def operand(x: Tensor, halves: bool) -> Tensor:
    if halves:
        cast = x.half() if x.is_cuda and x.is_floating_point() and x.dtype != 7 else x
    else:
        cast = lowered(x)
    return cast


def cast_for_cudnn(x: Tensor) -> Tuple[Tensor, bool]:
    # The input's cast, and whether float16 is what all operands become.
    acceptable = torch.cudnn_is_acceptable(x)
    halves = acceptable and not is_for_float16()
    cast = operand(x, halves)
    assert halves or acceptable == torch.cudnn_is_acceptable(cast), (
        "jit_amp: an exported recurrent network inside autocast is run by cuDNN if cuDNN takes its input and its input's cast: here it takes only one of them. Cast the input to the scope's dtype"
    )
    return cast, halves


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
    cast, halves = cast_for_cudnn(x)
    return torch.rnn_tanh(
        cast,
        operand(hx, halves),
        [operand(w, halves) for w in params],
        has_biases,
        num_layers,
        dropout,
        train,
        bidirectional,
        batch_first,
    )


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
    cast, halves = cast_for_cudnn(x)
    return torch.rnn_tanh(
        cast,
        batch_sizes,
        operand(hx, halves),
        [operand(w, halves) for w in params],
        has_biases,
        num_layers,
        dropout,
        train,
        bidirectional,
    )


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
    cast, halves = cast_for_cudnn(x)
    return torch.rnn_relu(
        cast,
        operand(hx, halves),
        [operand(w, halves) for w in params],
        has_biases,
        num_layers,
        dropout,
        train,
        bidirectional,
        batch_first,
    )


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
    cast, halves = cast_for_cudnn(x)
    return torch.rnn_relu(
        cast,
        batch_sizes,
        operand(hx, halves),
        [operand(w, halves) for w in params],
        has_biases,
        num_layers,
        dropout,
        train,
        bidirectional,
    )


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
    cast, halves = cast_for_cudnn(x)
    return torch.gru(
        cast,
        operand(hx, halves),
        [operand(w, halves) for w in params],
        has_biases,
        num_layers,
        dropout,
        train,
        bidirectional,
        batch_first,
    )


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
    cast, halves = cast_for_cudnn(x)
    return torch.gru(
        cast,
        batch_sizes,
        operand(hx, halves),
        [operand(w, halves) for w in params],
        has_biases,
        num_layers,
        dropout,
        train,
        bidirectional,
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
    cast, halves = cast_for_cudnn(x)
    return torch.lstm(
        cast,
        [operand(hx[0], halves), operand(hx[1], halves)],
        [operand(w, halves) for w in params],
        has_biases,
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
    cast, halves = cast_for_cudnn(x)
    return torch.lstm(
        cast,
        batch_sizes,
        [operand(hx[0], halves), operand(hx[1], halves)],
        [operand(w, halves) for w in params],
        has_biases,
        num_layers,
        dropout,
        train,
        bidirectional,
    )
