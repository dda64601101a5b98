# The fused encoder layer on CPU: mirrors aten/src/ATen/native/transformers/transformer.cpp.


def _transformer_encoder_layer_fwd(
    src: Tensor,
    embed_dim: int,
    num_heads: int,
    qkv_weight: Tensor,
    qkv_bias: Tensor,
    proj_weight: Tensor,
    proj_bias: Tensor,
    use_gelu: bool,
    norm_first: bool,
    eps: float,
    norm_weight_1: Tensor,
    norm_bias_1: Tensor,
    norm_weight_2: Tensor,
    norm_bias_2: Tensor,
    ffn_weight_1: Tensor,
    ffn_bias_1: Tensor,
    ffn_weight_2: Tensor,
    ffn_bias_2: Tensor,
    mask: Optional[Tensor],
    mask_type: Optional[int],
) -> Tensor:
    if src.numel() == 0:
        return src.clone()
    x = src
    if norm_first:
        x = torch.layer_norm(x, [embed_dim], norm_weight_1, norm_bias_1, eps, True)
    x = torch._native_multi_head_attention(
        x,
        x,
        x,
        embed_dim,
        num_heads,
        qkv_weight,
        qkv_bias,
        proj_weight,
        proj_bias,
        mask,
        False,
        True,
        mask_type,
    )[0]
    x = x.add_(src)
    if not norm_first:
        x = torch.layer_norm(x, [embed_dim], norm_weight_1, norm_bias_1, eps, True)
    residual = x
    if norm_first:
        x = torch.layer_norm(x, [embed_dim], norm_weight_2, norm_bias_2, eps, True)
    rows = x.reshape(x.size(0) * x.size(1), x.size(2))
    rows = torch._addmm_activation(
        ffn_bias_1, rows, ffn_weight_1.t(), beta=1, alpha=1, use_gelu=use_gelu
    )
    x = torch.linear(rows, ffn_weight_2, ffn_bias_2).reshape(x.size(0), x.size(1), x.size(2))
    x = x.add_(residual)
    if not norm_first:
        x = torch.layer_norm(x, [embed_dim], norm_weight_2, norm_bias_2, eps, True)
    return x
