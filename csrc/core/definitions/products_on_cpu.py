# einsum, tensordot and bilinear: mirrors aten/src/ATen/native/Linear.cpp. einsum contracts from
# left to right unless it is given a path; eager's torch.einsum gives it one where opt_einsum is
# installed, TorchScript's never does.
#
# What CPU's autocast sees of an einsum is `bmm`. A dimension that is summed is part of a `bmm` if
# its size is not 1 in either operand; else it is summed before, in the operand's own dtype, and if
# none is left the operands are multiplied elementwise. Lists of numbers are what is known when
# compiling, where the equation is.


def letters_of(part: str) -> List[int]:
    # 0 to 51 in the order in which ATen sorts letters, 52 for "...".
    found: List[int] = []
    i = 0
    while i < len(part):
        if part[i] == ".":
            assert part[i : i + 3] == "..." and 52 not in found, (
                "einsum: '.' that is not part of one '...'"
            )
            found.append(52)
            i += 3
        else:
            if part[i] != " ":
                assert part[i].isalpha(), "einsum: subscripts are letters"
                found.append(ord(part[i]) - (65 if part[i].isupper() else 71))
            i += 1
    return found


def operands_of(equation: str) -> List[List[int]]:
    arrow = equation.find("->")
    inputs = equation[:arrow] if arrow >= 0 else equation
    return [letters_of(part) for part in inputs.split(",")]


def output_of(equation: str, operands: List[List[int]]) -> List[int]:
    counts = [0] * 53
    for letters in operands:
        for letter in letters:
            counts[letter] += 1
    arrow = equation.find("->")
    if arrow < 0:
        output = [52]
        for letter in range(52):
            if counts[letter] == 1:
                output.append(letter)
        return output
    output = letters_of(equation[arrow + 2 :])
    seen: List[int] = []
    for letter in output:
        assert (counts[letter] > 0 or letter == 52) and letter not in seen, (
            "einsum: each letter of the output is one of the inputs, and there once"
        )
        seen.append(letter)
    return output


def sums(operands: List[List[int]], output: List[int]) -> bool:
    for letters in operands:
        for letter in letters:
            if letter not in output:
                return True
    return False


def has_ellipsis(operands: List[List[int]]) -> bool:
    for letters in operands:
        if 52 in letters:
            return True
    return False


def is_pair(operands: List[List[int]], output: List[int]) -> bool:
    # Two operands without diagonals, of which only letters are summed.
    if len(operands) != 2:
        return False
    for letters in operands:
        for i in range(len(letters)):
            if letters[i] in letters[:i] or (letters[i] == 52 and 52 not in output):
                return False
    return True


def summed(operand: List[int], other: List[int], output: List[int], shared: bool) -> List[int]:
    # The dimensions that are summed, of letters that the other operand has or has not. Behind "..."
    # they are counted from the end. In the order of the letters.
    found: List[int] = []
    for letter in range(52):
        if letter in operand and letter not in output and (letter in other) == shared:
            at = operand.index(letter)
            found.append(at - len(operand) if 52 in operand[:at] else at)
    return found


def ranks_of(operands: List[List[int]]) -> List[int]:
    return [len(letters) for letters in operands]


def layout_of(
    operands: List[List[int]], output: List[int], ranks: List[int]
) -> Tuple[List[List[int]], List[int], List[List[int]], int]:
    # How each operand gets the dimensions of the output and then those that are summed: the pairs of
    # which it takes diagonals, how many dimensions it lacks, and their order. And the output's rank.
    covered = 0
    for i in range(len(operands)):
        rank = len(operands[i])
        if 52 in operands[i]:
            covered = max(covered, ranks[i] - rank + 1)
            assert ranks[i] >= rank - 1, "einsum: more subscripts than dimensions"
        else:
            assert ranks[i] == rank, "einsum: as many subscripts as dimensions"
    place = [-1] * 53
    total = 0
    for letter in output:
        place[letter] = total
        total += covered if letter == 52 else 1
    kept = total
    if place[52] < 0:
        place[52] = total
        total += covered
    for letter in range(52):
        if place[letter] < 0:
            for letters in operands:
                if letter in letters and place[letter] < 0:
                    place[letter] = total
                    total += 1
    diagonals: List[List[int]] = []
    lacks: List[int] = []
    orders: List[List[int]] = []
    for i in range(len(operands)):
        order = [-1] * total
        pairs: List[int] = []
        dim = 0
        for letter in operands[i]:
            if letter == 52:
                n = ranks[i] - len(operands[i]) + 1
                for k in range(covered - n, covered):
                    order[place[52] + k] = dim
                    dim += 1
            elif order[place[letter]] < 0:
                order[place[letter]] = dim
                dim += 1
            else:
                pairs.append(order[place[letter]])
                pairs.append(dim)
        lacks.append(total - dim)
        for k in range(total):
            if order[k] < 0:
                order[k] = dim
                dim += 1
        diagonals.append(pairs)
        orders.append(order)
    return diagonals, lacks, orders, kept


def aligned(x: Tensor, diagonals: List[int], lacks: int, order: List[int]) -> Tensor:
    for i in range(len(diagonals) // 2):
        one = diagonals[2 * i]
        other = diagonals[2 * i + 1]
        assert x.size(one) == x.size(other), "einsum: a repeated subscript of two sizes"
        x = x.diagonal(0, one, other).movedim(-1, one)
    for i in range(lacks):
        x = x.unsqueeze(-1)
    return x.permute(order)


def names(rank: int) -> str:
    return "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"[:rank]


def product(a: Tensor, b: Tensor, dims: List[int]) -> Tensor:
    # Of operands that are aligned. The dimensions that are summed stay, with size 1.
    if len(dims) == 0:
        result = a * b
    else:
        all = names(a.dim())
        kept = all
        for d in dims:
            kept = kept.replace(all[d], "")
        result = torch.einsum(all + "," + all + "->" + kept, [lowered(a), lowered(b)])
        for d in dims:
            result = result.unsqueeze(d)
    return result


def contracted(operands: List[Tensor], kept: int, path: Optional[List[int]]) -> Tensor:
    rank = operands[0].dim()
    counts = [0] * rank
    for x in operands:
        for d in range(kept, rank):
            if x.size(d) != 1:
                counts[d] += 1
    left = operands[:]
    has_path = path is not None
    steps: List[int] = []
    if path is not None:
        steps = path
    step = 0
    while len(left) > 1:
        i = 0
        j = 1
        if has_path:
            i = min(steps[step], steps[step + 1])
            j = max(steps[step], steps[step + 1])
            assert 0 <= i and i < j and j < len(left), "einsum: a path that is none"
            step += 2
        b = left.pop(j)
        a = left.pop(i)
        now: List[int] = []
        of_a: List[int] = []
        of_b: List[int] = []
        d = kept
        while d < rank:
            if a.size(d) != 1 and b.size(d) != 1:
                counts[d] -= 1
                if counts[d] == 1:
                    now.append(d)
                    counts[d] = 0
            elif counts[d] == 1:
                if a.size(d) != 1:
                    of_a.append(d)
                    counts[d] = 0
                elif b.size(d) != 1:
                    of_b.append(d)
                    counts[d] = 0
            d += 1
        if len(of_a) > 0:
            a = a.sum(of_a, True)
        if len(of_b) > 0:
            b = b.sum(of_b, True)
        left.insert(len(left) if has_path else 0, product(a, b, now))
    x = left[0]
    if kept < rank:
        x = x.view(x.size()[:kept])
    return x


def summed_alone(x: Tensor, other: Tensor, kept: int) -> Tensor:
    now: List[int] = []
    d = kept
    while d < x.dim():
        if x.size(d) != 1 and other.size(d) == 1:
            now.append(d)
        d += 1
    if len(now) > 0:
        x = x.sum(now, True)
    return x


def contract_pair(operands: List[List[int]], output: List[int], a: Tensor, b: Tensor) -> Tensor:
    ranks = ranks_of(operands)
    if has_ellipsis(operands):
        ranks = [a.dim(), b.dim()]
    _, lacks, orders, kept = layout_of(operands, output, ranks)
    of_a = aligned(a, [], lacks[0], orders[0])
    of_b = aligned(b, [], lacks[1], orders[1])
    a = summed_alone(of_a, of_b, kept)
    b = summed_alone(of_b, of_a, kept)
    all = names(len(orders[0]))
    return torch.einsum(all + "," + all + "->" + all[:kept], [lowered(a), lowered(b)])


def contract(
    operands: List[List[int]], output: List[int], tensors: List[Tensor], path: Optional[List[int]]
) -> Tensor:
    ranks = ranks_of(operands)
    if has_ellipsis(operands):
        ranks = [x.dim() for x in tensors]
    diagonals, lacks, orders, kept = layout_of(operands, output, ranks)
    all_aligned: List[Tensor] = []
    for i in range(len(operands)):
        all_aligned.append(aligned(tensors[i], diagonals[i], lacks[i], orders[i]))
    return contracted(all_aligned, kept, path)


def einsum(equation: str, tensors: List[Tensor], path: Optional[List[int]]) -> Tensor:
    operands = operands_of(equation)
    output = output_of(equation, operands)
    assert len(operands) == len(tensors), "einsum: as many operands as the equation has"
    if not sums(operands, output) or len(operands) == 1:
        result = torch.einsum(equation, tensors, path=path)
    elif is_pair(operands, output):
        a = tensors[0]
        b = tensors[1]
        of_a = summed(operands[0], operands[1], output, True)
        of_b = summed(operands[1], operands[0], output, True)
        alone_a = summed(operands[0], operands[1], output, False)
        alone_b = summed(operands[1], operands[0], output, False)
        some = False
        whole = True
        for i in range(len(of_a)):
            in_a = a.size(of_a[i]) != 1
            in_b = b.size(of_b[i]) != 1
            some = (in_a & in_b) if i == 0 else some | (in_a & in_b)
            if len(of_a) > 1:
                whole = whole & (in_a == in_b)
        for i in range(len(alone_a)):
            whole = whole & (a.size(alone_a[i]) == 1)
        for i in range(len(alone_b)):
            whole = whole & (b.size(alone_b[i]) == 1)
        if some and whole:
            result = torch.einsum(equation, [lowered(a), lowered(b)], path=path)
        elif len(of_a) + len(alone_a) + len(alone_b) == 1 or not some:
            result = torch.einsum(equation, tensors, path=path)
        else:
            result = contract_pair(operands, output, a, b)
    else:
        result = contract(operands, output, tensors, path)
    return result


def others(rank: int, dims: List[int]) -> List[int]:
    found: List[int] = []
    for d in range(rank):
        if d not in dims and d - rank not in dims:
            found.append(d)
    return found


def elements(sizes: List[int]) -> int:
    n = 1
    for size in sizes:
        n *= size
    return n


def sizes_of(x: Tensor, dims: List[int]) -> List[int]:
    return [x.size(d) for d in dims]


def tensordot(x: Tensor, y: Tensor, dims_x: List[int], dims_y: List[int]) -> Tensor:
    rest_x = others(x.dim(), dims_x)
    rest_y = others(y.dim(), dims_y)
    sizes_x = sizes_of(x, rest_x)
    sizes_y = sizes_of(y, rest_y)
    m = elements(sizes_x)
    n = elements(sizes_y)
    is_mm = tensordot_is_mm()
    if not is_mm:
        is_mm = n != 1
        if not is_mm:
            is_mm = m != 1
    if is_mm:
        assert x.dtype == y.dtype, "tensordot: both inputs should have same dtype"
        of_x = x
        of_y = y
        k = 1
        for i in range(len(dims_x)):
            if y.size(dims_y[i]) == 1:
                of_x = of_x.sum([dims_x[i]], True)
            elif x.size(dims_x[i]) == 1:
                of_y = of_y.sum([dims_y[i]], True)
            else:
                assert x.size(dims_x[i]) == y.size(dims_y[i]), "tensordot: sizes that do not match"
                k *= x.size(dims_x[i])
        left = of_x.permute(rest_x + dims_x).reshape([m, k])
        right = of_y.permute(dims_y + rest_y).reshape([k, n])
        result = torch.mm(left, right).reshape(sizes_x + sizes_y)
    else:
        result = torch.tensordot(x, y, dims_x, dims_y)
    return result


def bilinear(x: Tensor, y: Tensor, weight: Tensor, bias: Optional[Tensor]) -> Tensor:
    result = torch.bilinear(lowered(x), lowered(y), lowered(weight), None).to(x.dtype)
    if bias is not None:
        result = result + bias
    return result
