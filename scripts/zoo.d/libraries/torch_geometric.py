"""torch_geometric: layers, models and pooling, with torch.jit.script."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from catalog import Calls, Model
from torch import Tensor
from torch import nn as torch_nn
from torch_geometric import nn
from ways import Args, Script

Make = Callable[[], torch_nn.Module]


def _mlp(inputs: int = 8) -> torch_nn.Module:
    return torch_nn.Sequential(
        torch_nn.Linear(inputs, 16), torch_nn.ReLU(), torch_nn.Linear(16, 16)
    )


# Of nodes with 8 features, and edges.
_LAYERS: dict[str, Make] = {
    "AGNNConv": lambda: nn.AGNNConv(),
    "APPNP": lambda: nn.APPNP(3, 0.1),
    "ARMAConv": lambda: nn.ARMAConv(8, 16, num_stacks=2, num_layers=2),
    "ChebConv": lambda: nn.ChebConv(8, 16, K=3),
    "ClusterGCNConv": lambda: nn.ClusterGCNConv(8, 16, diag_lambda=0.5),
    "EGConv": lambda: nn.EGConv(8, 16, num_heads=2, num_bases=2),
    "EdgeConv": lambda: nn.EdgeConv(_mlp(16)),
    "FeaStConv": lambda: nn.FeaStConv(8, 16, heads=2),
    "FiLMConv": lambda: nn.FiLMConv(8, 16),
    "GATConv": lambda: _Layer(nn.GATConv(8, 16, heads=2)),
    "GATv2Conv": lambda: _Layer(nn.GATv2Conv(8, 16, heads=2)),
    "GCNConv": lambda: nn.GCNConv(8, 16),
    "GENConv": lambda: nn.GENConv(8, 16),
    "GINConv": lambda: nn.GINConv(_mlp(), train_eps=True),
    "GatedGraphConv": lambda: nn.GatedGraphConv(16, 3),
    "GraphConv": lambda: nn.GraphConv(8, 16),
    "LEConv": lambda: nn.LEConv(8, 16),
    "LGConv": lambda: nn.LGConv(),
    "MFConv": lambda: nn.MFConv(8, 16),
    "ResGatedGraphConv": lambda: nn.ResGatedGraphConv(8, 16),
    "SAGEConv": lambda: nn.SAGEConv(8, 16),
    "SAGEConv of max": lambda: nn.SAGEConv(8, 16, aggr="max", project=True),
    "SAGEConv of LSTM": lambda: nn.SAGEConv(8, 16, aggr="lstm"),
    "SGConv": lambda: nn.SGConv(8, 16, K=2),
    "SSGConv": lambda: nn.SSGConv(8, 16, alpha=0.1),
    "SimpleConv": lambda: nn.SimpleConv(),
    "TAGConv": lambda: nn.TAGConv(8, 16),
    "TransformerConv": lambda: _Layer(nn.TransformerConv(8, 16, heads=2)),
    "WLConvContinuous": lambda: nn.WLConvContinuous(),
}
_MODELS: dict[str, Make] = {
    "EdgeCNN": lambda: nn.EdgeCNN(8, 16, 2, 4),
    "GAT": lambda: nn.GAT(8, 16, 2, 4, heads=2),
    "GATv2": lambda: nn.GAT(8, 16, 2, 4, heads=2, v2=True, jk="lstm"),
    "GCN": lambda: nn.GCN(8, 16, 2, 4),
    "GCN jumping": lambda: nn.GCN(8, 16, 3, 4, norm="batch_norm", jk="cat"),
    "GIN": lambda: nn.GIN(8, 16, 2, 4),
    "GraphSAGE": lambda: nn.GraphSAGE(8, 16, 2, 4),
    "Sequential": lambda: nn.Sequential(
        "x, edge_index",
        [
            (nn.GCNConv(8, 16), "x, edge_index -> x1"),
            torch_nn.ReLU(inplace=True),
            (nn.GraphConv(16, 16), "x1, edge_index -> x2"),
            (torch_nn.Linear(16, 4), "x2 -> x"),
        ],
    ),
}  # fmt: skip
_OF_EDGE_FEATURES: dict[str, Make] = {
    "CGConv": lambda: nn.CGConv(8, 4),
    "GATConv with edges": lambda: _WithEdges(nn.GATConv(8, 16, edge_dim=4)),
    "GENConv with edges": lambda: nn.GENConv(8, 16, edge_dim=4),
    "GINEConv": lambda: nn.GINEConv(_mlp(), edge_dim=4),
    "GMMConv": lambda: nn.GMMConv(8, 16, dim=4, kernel_size=3),
    "NNConv": lambda: nn.NNConv(8, 16, torch_nn.Linear(4, 128)),
    "PDNConv": lambda: nn.PDNConv(8, 16, edge_dim=4, hidden_channels=8),
    "TransformerConv with edges": lambda: _WithEdges(nn.TransformerConv(8, 16, edge_dim=4)),
}
_OF_EDGE_WEIGHTS: dict[str, Make] = {
    "ARMAConv with weights": lambda: nn.ARMAConv(8, 16),
    "GCN with weights": lambda: nn.GCN(8, 16, 2, 4),
    "GCN2Conv": lambda: _Initial(),
    "GCNConv with weights": lambda: nn.GCNConv(8, 16),
    "GraphConv with weights": lambda: nn.GraphConv(8, 16),
    "TAGConv with weights": lambda: nn.TAGConv(8, 16),
}
_OF_RELATIONS: dict[str, Make] = {
    "FastRGCNConv": lambda: nn.FastRGCNConv(8, 16, 3),
    "RGCNConv": lambda: nn.RGCNConv(8, 16, 3, num_bases=2),
}
_OF_POINTS: dict[str, Make] = {
    "PPFConv": lambda: nn.PPFConv(_mlp(12)),
    "PointNetConv": lambda: nn.PointNetConv(_mlp(11)),
    "PointTransformerConv": lambda: nn.PointTransformerConv(8, 16),
}
_POOLING: dict[str, Make] = {
    "AttentionalAggregation": lambda: nn.AttentionalAggregation(torch_nn.Linear(8, 1)),
    "LSTMAggregation": lambda: nn.LSTMAggregation(8, 16),
    "MaxAggregation": lambda: nn.MaxAggregation(),
    "MultiAggregation": lambda: nn.MultiAggregation(["mean", "max", "std"]),
    "SortAggregation": lambda: nn.SortAggregation(2),
    "SoftmaxAggregation": lambda: nn.SoftmaxAggregation(learn=True),
}
_NORMS: dict[str, Make] = {
    "GraphNorm": lambda: nn.GraphNorm(8),
    "InstanceNorm": lambda: nn.InstanceNorm(8, affine=True),
    "MeanSubtractionNorm": lambda: nn.MeanSubtractionNorm(),
    "PairNorm": lambda: nn.PairNorm(),
}


class _Layer(torch_nn.Module):
    """Of those with overloads, whose result may be a tuple: a call tells which is meant."""

    def __init__(self, conv: torch_nn.Module) -> None:
        super().__init__()
        self.conv = conv

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.conv(x, edge_index)


class _WithEdges(_Layer):
    def forward(self, x: Tensor, edge_index: Tensor, edges: Tensor) -> Tensor:
        return self.conv(x, edge_index, edges)


class _Initial(torch_nn.Module):
    """A layer that takes the first layer's nodes as well."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.conv = torch_nn.Linear(8, 16), nn.GCN2Conv(16, 0.1)

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor) -> Tensor:
        x = self.first(x)
        return self.conv(x, x, edge_index, edge_weight).relu()


def _edges(nodes: int, count: int) -> Tensor:
    """Sorted by target, as layers with an LSTM demand. Each node has one."""
    target = torch.cat([torch.arange(nodes), torch.randint(nodes, (count,))]).sort().values
    return torch.stack([torch.randint(nodes, target.shape), target])


def models() -> Iterator[Model]:
    def of(kind: dict[str, Make], args: Callable[[int, int], Args], family: str) -> Iterator[Model]:
        calls = lambda _: [Calls(args(12, 30), (args(7, 16), args(20, 50)))]  # noqa: E731
        for name, make in kind.items():
            yield Model("torch_geometric", name, family, make, calls, Script())

    def nodes(n: int, e: int) -> Args:
        return torch.randn(n, 8), _edges(n, e)

    def points(n: int, e: int) -> Args:
        return torch.randn(n, 8), torch.randn(n, 3), _edges(n, e)

    def oriented(n: int, e: int) -> Args:
        normal = torch.nn.functional.normalize(torch.randn(n, 3), dim=-1)
        return torch.randn(n, 8), torch.randn(n, 3), normal, _edges(n, e)

    def groups(n: int, e: int) -> Args:
        return torch.randn(n, 8), torch.arange(n) // 4

    yield from of(_LAYERS, nodes, "layers")
    yield from of(_MODELS, nodes, "models")
    yield from of(_OF_EDGE_FEATURES, lambda n, e: (*nodes(n, e), torch.rand(n + e, 4)), "layers")
    yield from of(_OF_EDGE_WEIGHTS, lambda n, e: (*nodes(n, e), torch.rand(n + e)), "layers")
    yield from of(_OF_RELATIONS, lambda n, e: (*nodes(n, e), torch.randint(3, (n + e,))), "layers")
    ppf = {"PPFConv": _OF_POINTS.pop("PPFConv")}
    yield from of(ppf, oriented, "layers")
    yield from of(_OF_POINTS, points, "layers")
    yield from of(_POOLING, groups, "pooling")
    yield from of(_NORMS, groups, "norms")
