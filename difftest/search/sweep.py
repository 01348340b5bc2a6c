"""Every width once: what shows at one width and in one binade of values is met by no grid of either."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from dataclasses import replace

from difftest.cases import binades, regimes
from difftest.cases.case import Case
from difftest.cases.request import Request
from reference.formats import FORMATS
from reference.operators import operator


def sweep(request: Request, op: str, dtype: str) -> Iterator[Case]:
    """A case for each width from 1 to the request's widest, in an order that is drawn; then all of them again, on other values.

    With as many rows as it takes for every binade of every role to occur, or at most as many as were asked for.
    """
    for turn in itertools.count():
        draw = random.Random(f"{request.seed}/{op}/{dtype}/sweep/{turn}")
        for width in draw.sample(range(1, request.most + 1), request.most):
            rows = binades.rows_for(operator(op), FORMATS[dtype], width)
            if request.rows is not None:
                rows = max(1, min(rows, max(request.rows)))
            case = request.template(op, dtype, width, regimes.EVERY_BINADE, (rows,), origin="search")
            yield replace(case, seed=draw.randrange(2**32))
