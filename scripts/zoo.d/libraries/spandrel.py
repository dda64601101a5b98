"""spandrel: restoration and upscaling of images, small, traced."""

from __future__ import annotations

# Before torchvision.
import torchvision_extension  # noqa: F401  # isort: skip

from collections.abc import Callable, Iterator

from catalog import Model, batches
from spandrel.architectures.Compact import Compact
from spandrel.architectures.DnCNN import DnCNN
from spandrel.architectures.ESRGAN import ESRGAN
from spandrel.architectures.NAFNet import NAFNet
from spandrel.architectures.OmniSR import OmniSR
from spandrel.architectures.PLKSR import PLKSR
from spandrel.architectures.RCAN import RCAN
from spandrel.architectures.SAFMN import SAFMN
from spandrel.architectures.SPAN import SPAN
from spandrel.architectures.SwinIR import SwinIR
from torch import nn
from ways import Trace

_MODELS: dict[str, Callable[[], nn.Module]] = {
    "Compact": lambda: Compact(num_feat=8, num_conv=2, upscale=2),
    "DnCNN": lambda: DnCNN(in_nc=3, out_nc=3, nc=8, nb=4),
    "ESRGAN": lambda: ESRGAN(num_filters=8, num_blocks=1, scale=2),
    "NAFNet": lambda: NAFNet(width=8, middle_blk_num=1, enc_blk_nums=[1], dec_blk_nums=[1]),
    "OmniSR": lambda: OmniSR(num_feat=8, block_num=1, res_num=1, window_size=4, up_scale=2),
    "PLKSR": lambda: PLKSR(dim=16, n_blocks=1, upscaling_factor=2),
    "RCAN": lambda: RCAN(n_resgroups=1, n_resblocks=1, n_feats=8, reduction=4, scale=2),
    "SAFMN": lambda: SAFMN(dim=16, n_blocks=1, upscaling_factor=2),
    "SPAN": lambda: SPAN(num_in_ch=3, num_out_ch=3, feature_channels=8, upscale=2),
    "SwinIR": lambda: SwinIR(
        img_size=16, window_size=4, depths=[2], embed_dim=16, num_heads=[2], upscale=2,
        upsampler="pixelshuffle",
    ),
}  # fmt: skip


def models() -> Iterator[Model]:
    for name, build in _MODELS.items():
        calls = batches((3, 16, 16))
        yield Model("spandrel", name, "images", build, lambda _, calls=calls: [calls], Trace())
