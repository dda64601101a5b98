# Mathematics, as in math.py: operators that on CPU call others of the float32 list, but with operands
# that are float32, float64 or complex already.


def linalg_norm__ord_str(
    x: Tensor, ord: str, dim: Optional[List[int]], keepdim: bool, dtype: Optional[int]
) -> Tensor:
    return torch.linalg_norm(x, ord, dim, keepdim, dtype=dtype)
