"""A file per library: which models of it there are, what they are called with, and how they become
TorchScript. `catalog` finds the files; each has `models()`.
"""
