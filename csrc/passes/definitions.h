// Operators in terms of others, in TorchScript, by topic.
//
// kDefinitions are those of jit_amp's own operators. The other sources are for decompose: what
// composite operators of ATen do, as far as autocast can see it. A function there has the name of
// the operator that it defines and, after two underscores, that of the overload, where it has one:
// `aten::gru.input` is `gru__input`. A source whose name ends with OnCpu holds for CPU only,
// because other devices run other code.
#pragma once

#include "passes/definitions/dialect.h"
#include "passes/definitions/losses.h"
#include "passes/definitions/norms.h"
#include "passes/definitions/padding.h"
#include "passes/definitions/products.h"
#include "passes/definitions/recurrent.h"
#include "passes/definitions/transformer.h"
