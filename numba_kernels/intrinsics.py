"""The old names of what :mod:`numba_kernels.backend` holds, until nothing imports them."""

from .backend.arithmetic import (  # noqa: F401
    absolute,
    divide,
    exp2_approx,
    fma,
    keep_if,
    reciprocal,
    reciprocal_approx,
    rsqrt,
    sum_squares,
    vector_add,
    vector_mul,
)
from .backend.clusters import BLOCK_SPAN, MOST_BLOCKS, cluster_arrive, cluster_wait, send_to_block  # noqa: F401
from .backend.clusters import arrive_and_expect as expect_words  # noqa: F401
from .backend.clusters import init_mbarrier as make_mailbox  # noqa: F401
from .backend.clusters import phase_has_ended as words_are_there  # noqa: F401
from .backend.clusters import wait_for_phase as wait_for_words  # noqa: F401
from .backend.conversions import (  # noqa: F401
    FORMATS,
    Format,
    float_from_bits,
    make_narrow,
    make_rounded_product,
    make_rounded_sum,
    make_widen,
    word_type,
    words_in,
)
from .backend.dependent_launch import release_dependents, wait_for_predecessor  # noqa: F401
from .backend.memory import make_get, make_load, make_store, put  # noqa: F401
from .backend.memory import make_shared_load as make_load_part  # noqa: F401
from .backend.memory import make_shared_store as make_store_part  # noqa: F401
from .backend.memory import prefetch_l2 as prefetch_run  # noqa: F401
from .backend.tile_counter import TILE_COUNTERS as COUNTERS  # noqa: F401
from .backend.tile_counter import take_tile as draw  # noqa: F401
