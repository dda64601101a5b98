# Padding: mirrors aten/src/ATen/native/PadNd.cpp.


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
