// definitions: operators in terms of others, in TorchScript, by topic.
//
// The texts are the files of core/definitions, which setup.py writes as C++ strings when it builds:
// that of `math_on_cpu.py` is kMathOnCpu, without the comment at its top.
//
// kDialect are those of jit_amp's own operators, and kAttention is for fuse_attention. The others
// are for decompose: what composite operators of ATen do, as far as autocast can see it. A function
// there has the name of the operator that it defines and, after two underscores, that of the
// overload, where it has one: `aten::gru.input` is `gru__input`. A source whose name ends with
// OnCpu holds for CPU only, because other devices run other code; one that ends with OnCuda holds
// where CPU's autocast does nothing to the operator.
#pragma once

#include "definitions.inc"
