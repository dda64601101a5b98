"""What takes long, and what it is for: ``scripts/test --slow`` runs it, and CI does at each change.

A key is the beginning of a test's name, as pytest shows it. Each row is there because nothing else
finds what it finds, or because it is the same in many more forms than a change needs at once.
"""

SLOW = {
    "tests/pairs/test_pairs.py::test_eager_and_jit_amp_agree_at_each_two_doors": (
        "features in pairs through doors in pairs: what no one thought of together"
    ),
    "tests/pairs/test_pairs.py::test_pytorch_alone": "that PyTorch has the faults that excuse ours",
    "tests/pairs/test_pairs.py::test_a_campaign_goes_on": "the search's own log",
    "tests/pairs/test_pairs.py::test_what_differs_is_made_small": "the search's own reducing",
    "tests/pairs/test_exports.py": "each feature as a program of torch.export",
    "tests/fuzz/test_programs.py": "programs by chance",
    "tests/fuzz/test_hostile.py": "graphs by chance",
    "tests/fuzz/test_soak.py::test_servers": "files that are loaded again while they are written",
    "tests/test_docs.py::test_the_examples_of_a_page_run": "commands and programs of the documents",
    "tests/test_docs.py::test_an_example_prints": "whole examples",
    "tests/test_docs.py::test_the_server": "builds an example's program with libtorch",
    "tests/sweep/test_operators.py": "every operator of PyTorch's own samples",
    "tests/jit/deploy/test_attention.py::test_in_blocks": "attention in blocks, in 62 forms",
    "tests/jit/deploy/test_attention.py::test_fused": "attention by the kernel, in 32 forms",
    "tests/jit/deploy/test_decompose.py::test_a_network": "recurrent networks of each kind",
    "tests/jit/deploy/test_decompose.py::test_einsum": "einsum's subscripts",
    "tests/jit/deploy/test_guard_autocast.py::test_in_cpp": "builds a program with libtorch",
    "tests/jit/deploy/test_elsewhere.py": "files in libtorch, other processes and other optimizers",
    "tests/jit/deploy/test_engines.py": "files in other engines; AOTInductor compiles",
    "tests/jit/deploy/test_layouts.py::test_random_programs": "layouts by chance",
    "tests/jit/deploy/test_layouts.py::test_values_strides_and_memory": "layouts in 98 forms",
    "tests/jit/deploy/test_models.py::test_folded_it_is_as_near": "whole models, folded",
    "tests/jit/deploy/test_models.py::test_with_an_example": "whole models, and their weights",
    "tests/jit/deploy/test_reach.py": "the tables of all operators, as pages show them",
    "tests/jit/deploy/test_command_line.py::test_lower_and_policy": "asks of every operator",
    "tests/jit/deploy/test_definitions.py": "operators written out in others, on pretended devices",
    "tests/jit/behaviour/test_xpu_and_mps.py::test_reach": "the same for other accelerators",
    "tests/jit/behaviour/test_replacing.py::test_an_interrupt": "Ctrl-C at many lines",
    "tests/jit/behaviour/test_ddp.py": "two processes that train",
    "tests/jit/test_typing.py": "mypy over programs of users",
}
