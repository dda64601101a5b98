"""The operators that random programs are made of: one line each, by what autocast does to them.

A line is a rule, the kind of the result and an expression. A rule says which dtypes of operands go
together: `lower` and `fp32` are CPU's autocast lists, whose operators want operands of one dtype
where autocast does not cast them; `same` wants one dtype and autocast leaves it alone; `promote`
and `mixed` take any floating dtypes. Kinds are shapes:

    m (4, 4)      v (4,)      s ()      b (2, 4, 4)      i (1, 2, 4, 4)      w (1, 2, 4, 4, 4)
    idx (4,) of int64 below 4           mask (4, 4) of bool              x anything, only returned

and besides them, in expressions, `l`, a list of m, and `opt`, a v that may be None.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

EXPRESSIONS = """
lower    m     torch.mm({m}, {m})
lower    m     {m} @ {m}
lower    v     {m} @ {v}
lower    b     torch.bmm({b}, {b})
lower    b     torch.matmul({b}, {m})
lower    m     torch.addmm({m}, {m}, {m})
lower    m     torch.addmm({v}, {m}, {m}, beta=0.5, alpha=2.0)
lower    b     torch.baddbmm({b}, {b}, {b})
lower    m     torch.addbmm({m}, {b}, {b})
lower    m     F.linear({m}, {m})
lower    m     F.linear({m}, {m}, {v})
lower    m     F.linear({m}, {m}, {opt})
lower    b     F.linear({b}, {m}, bias={opt})
lower    b     F.conv1d({b}, {m}.unsqueeze(2), {opt})
lower    i     F.conv2d({i}, {m}[:2, :2].reshape(2, 2, 1, 1), padding=0)
lower    i     F.conv2d({i}, {m}[:2, 2:].reshape(2, 2, 1, 1), {v}[:2])
lower    i     F.conv_transpose2d({i}, {m}[:2, :2].reshape(2, 2, 1, 1), {v}[2:])
lower    w     F.conv3d({w}, {m}[:2, :2].reshape(2, 2, 1, 1, 1))
lower    m     torch.prelu({m}, {v})
lower    b     F.scaled_dot_product_attention({b}, {b}, {b})
lower    v     torch.linalg.vecdot({m}, {m})
lower    m     torch.einsum("ij,jk->ik", {m}, {m})
lower    b     torch.einsum("bij,bjk->bik", {b}, {b})
lower    m     torch.linalg.multi_dot([{m}, {m}, {m}])
lower    m     F.bilinear({m}, {m}, {m}.expand(4, 4, 4), {opt})
lower    v     torch.inner({m}, {v})
fp32     x     F.avg_pool3d({w}, 2)
fp32     w     F.adaptive_avg_pool3d({w}, (4, 4, 4))
fp32     x     F.max_pool3d({w}, 2)
fp32     s     F.mse_loss({m}, {m})
fp32     m     F.l1_loss({m}, {m}, reduction="none")
fp32     s     F.smooth_l1_loss({m}, {m})
fp32     s     F.huber_loss({m}, {m}, reduction="sum")
fp32     s     F.kl_div({m}, {m}, reduction="batchmean")
fp32     s     F.cross_entropy({m}, {idx})
fp32     s     F.cross_entropy({m}, {idx}, weight={v}.detach())
fp32     v     F.nll_loss({m}, {idx}, reduction="none")
fp32     s     F.binary_cross_entropy_with_logits({m}, {m})
fp32     s     F.binary_cross_entropy(torch.sigmoid({m}), torch.sigmoid({m}))
fp32     s     F.soft_margin_loss({m}, {m}.detach())
fp32     s     F.triplet_margin_loss({m}, {m}, {m})
fp32     s     F.margin_ranking_loss({v}, {v}, {v})
fp32     s     F.poisson_nll_loss({m}, {m})
fp32     s     F.multi_margin_loss({m}, {idx})
fp32     m     torch.cdist({m}, {m})
fp32     s     torch.prod({m})
fp32     v     {m}.prod(1)
fp32     s     {m}.trace()
fp32     s     torch.quantile({m}, 0.5)
fp32     m     torch.fft.fft({m}).abs()
fp32     m     torch.fft.irfft({m}, 4)
fp32     x     F.pad({m}.unsqueeze(0), [1, 1], mode="reflect")
fp32     x     F.pad({b}, [1, 1], mode="replicate")
fp32     m     torch.polar({m}, {m}).real
promote  x     torch.cat([{m}, {m}])
promote  m     torch.cat([{m}, {m}], 1)[:, 2:6]
promote  m     torch.cat([{m}[:2], {m}[2:]])
promote  x     torch.cat({l})
promote  b     torch.stack([{m}, {m}])
promote  b     torch.stack({l})[:1].expand(2, 4, 4)
promote  m     torch.stack([{v}, {v}, {v}, {v}], dim=1)
promote  x     torch.hstack([{m}, {v}.unsqueeze(1)])
same     m     torch.index_copy({m}, 0, {idx}, {m})
same     v     torch.mv({m}, {v})
same     s     torch.dot({v}, {v})
same     m     torch.lerp({m}, {m}, 0.25)
same     m     F.layer_norm({m}, [4], {v}, {v})
same     m     torch.index_add({m}, 1, {idx}, {m})
mixed    m     {m} + {m}
mixed    m     {m} * {m}
mixed    m     {m} - {v}
mixed    m     {m} / 3.0
mixed    m     {m} * {s}
mixed    m     torch.add({m}, {m}, alpha=2)
mixed    m     torch.where({mask}, {m}, {m})
mixed    m     torch.maximum({m}, {m})
mixed    m     torch.outer({v}, {v})
mixed    m     torch.addcmul({m}, {m}, {m})
mixed    m     F.relu({m})
mixed    m     torch.relu({m})
mixed    m     torch.sigmoid({m})
mixed    m     {m}.tanh()
mixed    m     torch.exp(-{m}.abs())
mixed    m     F.gelu({m})
mixed    m     F.softmax({m}, dim=1)
mixed    m     torch.softmax({m}, 0)
mixed    m     torch.log_softmax({m}, 1)
mixed    m     F.layer_norm({m}, [4])
mixed    m     F.normalize({m}, dim=1)
mixed    m     {m}.cumsum(0)
mixed    m     {m}.clamp(-0.5, 0.5)
mixed    m     {m}.masked_fill({mask}, 0.25)
mixed    m     F.embedding({idx}, {m})
mixed    m     F.dropout({m}, 0.5, training=False) + 0.5
mixed    m     torch.tril({m})
mixed    m     {m}.clone()
mixed    s     {m}.sum()
mixed    v     {m}.sum(dim=1)
mixed    v     {m}.mean(0)
mixed    s     torch.norm({m})
mixed    v     torch.logsumexp({m}, 1)
mixed    v     {m}.amax(dim=0)
mixed    s     {m}.std()
mixed    b     {b}.softmax(dim=2)
mixed    b     {b} + {m}
mixed    i     F.max_pool2d({i}, 3, 1, 1)
mixed    i     F.avg_pool2d({i}, 3, 1, 1)
mixed    i     F.interpolate({i}, size=[4, 4], mode="nearest")
mixed    i     F.silu({i})
mixed    m     torch.zeros_like({m}) + 0.5
mixed    idx   torch.argsort({m}[1])
mixed    mask  {m} > 0
"""

# Views of an operand, and results of which autocast cannot change the dtype.
VIEWS = """
m  {m}.t()
m  {m}.transpose(0, 1)
m  {m}.reshape(2, 8).view(4, 4)
m  {m}[:]
m  {b}[0]
m  {b}.select(0, 1)
m  {b}.transpose(1, 2)[1]
m  {m}.unsqueeze(0).expand(3, 4, 4)[2]
m  {m}.permute(1, 0)
m  {m}.contiguous()
m  {m}.detach()
m  {i}[0, 1]
m  {v}.expand(4, 4)
m  {b}.unbind(0)[1]
m  {m}.chunk(2)[0].view_as({m}[2:]).repeat(2, 1)
v  {m}[0]
v  {m}[:, 1]
v  {m}.diagonal()
v  {m}.flatten()[2:6]
v  {m}.narrow(0, 1, 1).squeeze(0)
s  {m}[0, 1]
b  {i}.squeeze(0)
b  {i}[0]
b  {b}.transpose(1, 2)
i  {b}.unsqueeze(0)
w  {m}.expand(1, 2, 4, 4, 4)
x  {m}.view(2, 8)
x  {m}[1:3]
"""

# Explicit casts of {m}; the dtype of the result, where it is known.
CASTS = """
float32   {m}.float()
float16   {m}.half()
float64   {m}.double()
float32   {m}.to(torch.float32)
bfloat16  {m}.to(torch.bfloat16)
float16   {m}.to(dtype=torch.float16)
float32   {m}.to(torch.float32, copy=True)
bfloat16  {m}.to("cpu", torch.bfloat16)
?         {m}.to({m}.dtype)
?         {m}.type_as({m}).clone()
?         {m}.to({m})
?         {m}.to(torch.get_autocast_dtype("cpu"))
"""

# Statements that write to {T}, a matrix; `same` where the operands must have its dtype.
WRITES = """
mixed  {T}.add_({m})
mixed  {T}.sub_({v})
mixed  {T}.mul_({m})
mixed  {T} += {m}
mixed  {T} *= 0.5
mixed  {T}.copy_({m})
mixed  {T}[0] = {v}
mixed  {T}[:, 1:3] = 0.5
mixed  {T}[1] += {v}
mixed  {T}[{mask}] = 0.25
mixed  {T}.relu_()
mixed  torch.relu_({T})
mixed  F.relu({T}, inplace=True)
mixed  {T}.clamp_(-1.0, 1.0)
mixed  {T}.masked_fill_({mask}, 0.5)
mixed  {T}.t_()
mixed  {T}.transpose(0, 1).mul_(0.5)
mixed  {T}.select(0, 1).add_({v})
mixed  {T}.view(2, 8).neg_()
mixed  {T}[2:].zero_()
mixed  {T}.fill_(0.5)
same   {T}.addmm_({m}, {m})
same   {T}.index_copy_(0, {idx}, {m})
same   {T}.index_add_(0, {idx}, {m})
same   torch.mm({m}, {m}, out={T})
same   torch.add({m}, {m}, out={T})
same   torch.cat([{m}[:2], {m}[2:]], out={T})
"""

# Modules of torch.nn: how they are made and called, and the kind of the result. Their weights are
# float32, and so must be their operands where autocast does not cast.
SUBMODULES = """
m  nn.Linear(4, 4)                                                   {}({m})
m  nn.Linear(4, 4, bias=False)                                       {}({m})
m  nn.LayerNorm(4)                                                   {}({m})
m  nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.LayerNorm(4))        {}({m})
m  nn.Sequential(nn.Linear(4, 4), nn.ReLU(inplace=True))             {}({m})
i  nn.Conv2d(2, 2, 3, padding=1)                                     {}({i})
i  nn.BatchNorm2d(2)                                                 {}({i})
i  nn.Sequential(nn.Conv2d(2, 2, 1, bias=False), nn.BatchNorm2d(2))  {}({i})
b  nn.Conv1d(4, 4, 1)                                                {}({b})
m  nn.LSTMCell(4, 4)                                                 {}({m})[0]
m  nn.GRUCell(4, 4)                                                  {}({m})
b  nn.LSTM(4, 4, batch_first=True)                                   {}({b})[0]
b  nn.GRU(4, 4)                                                      {}({b})[0]
b  nn.MultiheadAttention(4, 2, batch_first=True)                     {}({b}, {b}, {b})[0]
m  nn.Embedding(4, 4)                                                {}({idx})
m  nn.PReLU()                                                        {}({m})
m  nn.Bilinear(4, 4, 4)                                              {}({m}, {m})
s  nn.MSELoss()                                                      {}({m}, {m})
m  nn.Softmax(dim=1)                                                 {}({m})
"""

_OPERAND = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True)
class Operator:
    rule: str
    result: str
    text: str

    @property
    def operands(self) -> list[str]:
        return _OPERAND.findall(self.text)

    def write(self, operands: list[str]) -> str:
        """The expression with these operands, in the order of the text."""
        rest = iter(operands)
        return _OPERAND.sub(lambda _: next(rest), self.text)


def _lines(table: str, columns: int) -> list[list[str]]:
    return [line.split(maxsplit=columns - 1) for line in table.strip().splitlines()]


OPERATORS = [Operator(*line) for line in _lines(EXPRESSIONS, 3)]
VIEW_OPERATORS = [Operator("view", *line) for line in _lines(VIEWS, 2)]
CAST_OPERATORS = [Operator("cast", *line) for line in _lines(CASTS, 2)]
WRITE_OPERATORS = [Operator(rule, "", text) for rule, text in _lines(WRITES, 2)]


@dataclass(frozen=True)
class Submodule:
    make: str
    call: Operator


def _submodule(line: str) -> Submodule:
    result, rest = line.split(maxsplit=1)
    make, call = re.split(r"\s{2,}", rest)
    return Submodule(make, Operator("submodule", result, call))


SUBMODULE_CLASSES = [_submodule(line) for line in SUBMODULES.strip().splitlines()]
