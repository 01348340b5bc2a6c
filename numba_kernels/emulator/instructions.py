"""The instructions that a rewritten kernel is made of, by the names under which the passes write them."""

from __future__ import annotations

from typing import Any

from . import atomics, collectives, indexing, memory, ordering, words

THREAD = ("thread_x", "thread_y", "thread_z")
BY_NAME: dict[str, Any] = {
    f"__{name}": getattr(module, name)
    for module, names in {
        words: [
            "peek",
            "poke",
            "mark",
            "passed",
            "word32",
            "thread_x",
            "thread_y",
            "thread_z",
            "lane_of",
            "lanes_below",
            "tick",
            "finish",
        ],
        collectives: ["offer_vote", "offer_mask", "offer_match", "answer_like", "answer_flag", "answer_count", "answer_match"],
        memory: ["shared_array", "local_array", "dynamic_array"],
        indexing: ["index", "span"],
        ordering: ["fence"],
    }.items()
    for name in names
}
BY_NAME.update({f"__offer_{name}": offer for name, offer in collectives.OFFER_SHUFFLE.items()})
BY_NAME.update({f"__atomic_{name}": operation for name, operation in atomics.OPERATIONS.items()})
