// Operators in terms of others, in TorchScript, by topic.
//
// kDefinitions are those of jit_amp's own operators. The other sources are for decompose: what
// composite operators of ATen do, as far as autocast can see it. A function there has the name of
// the operator that it defines and, after two underscores, that of the overload, where it has one:
// `aten::gru.input` is `gru__input`. A source whose name ends with OnCpu holds for CPU only,
// because other devices run other code; one that ends with OnCuda holds where CPU's autocast does
// nothing to the operator.
#pragma once

#include "core/definitions/dialect.h"
#include "core/definitions/losses.h"
#include "core/definitions/math.h"
#include "core/definitions/padding.h"
#include "core/definitions/products.h"
#include "core/definitions/recurrent.h"
#include "core/definitions/transformer.h"
