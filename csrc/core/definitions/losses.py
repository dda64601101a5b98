# Losses: mirrors aten/src/ATen/native/LossNLL.cpp.


def nll_loss_nd(
    x: Tensor, target: Tensor, weight: Optional[Tensor], reduction: int, ignore_index: int
) -> Tensor:
    if x.dim() <= 2:
        return torch.nll_loss(x, target, weight, reduction, ignore_index)
    if x.dim() == 4:
        return torch.nll_loss2d(x, target, weight, reduction, ignore_index)
    flat = torch.nll_loss2d(
        x.reshape(x.size(0), x.size(1), 1, -1),
        target.reshape(x.size(0), 1, -1),
        weight,
        reduction,
        ignore_index,
    )
    if reduction == 0:
        return flat.reshape(target.size())
    return flat
