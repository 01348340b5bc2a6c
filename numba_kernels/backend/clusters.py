"""Thread-block clusters: blocks that write to each other's shared memory, and mbarriers that count what has arrived.

An *mbarrier* is a 64-bit word in shared memory, with phases of parity 0, 1, 0, …: a phase ends when its one thread has arrived
and all the words it expects have been sent (PTX ISA, mbarrier).
"""

from __future__ import annotations

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from .codegen import I32, I64, asm, element_pointer, make_statement, on_gpu, refuse_if

# Every block of the cluster says that it has started; the wait then makes each one's shared memory safe to write. Once a launch
# only: the arrival fences every earlier access to memory, which a row's sum must not wait for (see send_to_block).
cluster_arrive = make_statement("barrier.cluster.arrive.aligned;")
cluster_wait = make_statement("barrier.cluster.wait.aligned;")
cluster_wait.waits_for = "cluster"  # type: ignore[attr-defined]

# On the CPU emulator: bytes between the shared memories of a cluster's blocks, so many at most, the first one's at a multiple of
# all these bytes, with the number of blocks in the last word before the second's; and an mbarrier is a word with the words still
# to come in its lower half, above them whether its thread has arrived and its phase.
BLOCK_SPAN, MOST_BLOCKS = 1 << 18, 16


def _in_block(context, builder, pointer, rank):
    """The same place in the shared memory of the cluster's block ``rank``, on the CPU, which is checked to be there."""
    address = builder.ptrtoint(pointer, I64)
    cluster = builder.and_(address, I64(-MOST_BLOCKS * BLOCK_SPAN))
    blocks = builder.load(builder.inttoptr(builder.add(cluster, I64(BLOCK_SPAN - 8)), ir.PointerType(I64)))
    rank = builder.zext(rank, I64)
    refuse_if(context, builder, builder.icmp_unsigned(">=", rank, blocks), "access to a block outside the cluster")
    inside = builder.and_(address, I64(BLOCK_SPAN - 1))
    place = builder.or_(builder.or_(cluster, inside), builder.mul(rank, I64(BLOCK_SPAN)))
    return builder.inttoptr(place, pointer.type)


def _change_mbarrier(builder, pointer, *, arrives: bool, words) -> None:
    """An mbarrier's phase ends, on the CPU, when its thread has arrived and no words are still to come."""
    word = builder.load(pointer)
    to_come = builder.add(builder.trunc(word, I32), words)
    above = builder.or_(builder.lshr(word, I64(32)), I64(int(arrives)))
    ends = builder.and_(builder.icmp_signed("==", to_come, I32(0)), builder.trunc(above, ir.IntType(1)))
    above = builder.add(above, builder.zext(ends, I64))
    builder.store(builder.or_(builder.shl(above, I64(32)), builder.zext(to_come, I64)), pointer)


def _shared_address(context, builder, array_type, array, index):
    """The 32-bit address of ``array[index]`` in shared memory."""
    element = element_pointer(context, builder, array_type, array, index)
    return builder.ptrtoint(builder.addrspacecast(element, ir.PointerType(element.type.pointee, addrspace=3)), I32)


@intrinsic
def init_mbarrier(typingctx, mbarriers, which):
    """``mbarriers[which]``, of a shared array of 64-bit words, becomes a barrier for one thread (``mbarrier.init``)."""

    def codegen(context, builder, sig, args):
        if on_gpu(builder):
            at = _shared_address(context, builder, sig.args[0], args[0], args[1])
            text = "mbarrier.init.shared::cta.b64 [$0], 1; fence.mbarrier_init.release.cluster;"
            asm(builder, text, ir.VoidType(), "r,~{memory}", [at], side_effect=True)
        else:
            builder.store(I64(0), element_pointer(context, builder, sig.args[0], args[0], args[1]))
        return context.get_dummy_value()

    return types.void(mbarriers, types.int64), codegen


@intrinsic
def arrive_and_expect(typingctx, mbarriers, which, count):
    """Arrive at an mbarrier, whose phase then ends when ``count`` words of 32 bits have been sent to it (``expect_tx``)."""

    def codegen(context, builder, sig, args):
        if on_gpu(builder):
            at = _shared_address(context, builder, sig.args[0], args[0], args[1])
            text = "mbarrier.arrive.expect_tx.shared::cta.b64 _, [$0], $1;"
            asm(builder, text, ir.VoidType(), "r,r,~{memory}", [at, builder.mul(args[2], I32(4))], side_effect=True)
        else:
            at = element_pointer(context, builder, sig.args[0], args[0], args[1])
            _change_mbarrier(builder, at, arrives=True, words=args[2])
        return context.get_dummy_value()

    return types.void(mbarriers, types.int64, types.int32), codegen


@intrinsic
def wait_for_phase(typingctx, mbarriers, which, parity):
    """Wait for the end of an mbarrier's phase of this parity, the first one's being 0 (``try_wait.parity``, repeated)."""

    def codegen(context, builder, sig, args):
        if on_gpu(builder):
            at = _shared_address(context, builder, sig.args[0], args[0], args[1])
            text = "{ .reg .pred p; AGAIN: mbarrier.try_wait.parity.shared::cta.b64 p, [$0], $1; @!p bra.uni AGAIN; }"
            asm(builder, text, ir.VoidType(), "r,r,~{memory}", [at, args[2]], side_effect=True)
        return context.get_dummy_value()

    return types.void(mbarriers, types.int64, types.int32), codegen


@intrinsic
def send_to_block(typingctx, shared, index, value, rank, mbarriers, which):
    """``shared[index] = value``, of 32 bits, in the cluster's block ``rank``, counted by its mbarrier ``which``.

    ``st.async``, to addresses that ``mapa`` gives. No fence goes with it: stores to memory that are still under way are not
    waited for.
    """

    def codegen(context, builder, sig, args):
        if on_gpu(builder):
            here = [_shared_address(context, builder, sig.args[k], args[k], args[k + 1]) for k in (0, 4)]
            there = [asm(builder, "mapa.shared::cluster.u32 $0, $1, $2;", I32, "=r,r,r", [at, args[3]]) for at in here]
            text = "st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [$0], $1, [$2];"
            value = builder.bitcast(args[2], I32)
            asm(builder, text, ir.VoidType(), "r,r,r,~{memory}", [there[0], value, there[1]], side_effect=True)
        else:
            here = [element_pointer(context, builder, sig.args[k], args[k], args[k + 1]) for k in (0, 4)]
            element, mbarrier = (_in_block(context, builder, at, args[3]) for at in here)
            builder.store(args[2], element)
            _change_mbarrier(builder, mbarrier, arrives=False, words=I32(-1))
        return context.get_dummy_value()

    return types.void(shared, types.int64, shared.dtype, types.int32, mbarriers, types.int64), codegen


@intrinsic
def phase_has_ended(typingctx, mbarriers, which, parity):
    """Whether an mbarrier's phase of this parity has ended, on the CPU."""

    def codegen(context, builder, sig, args):
        word = builder.load(element_pointer(context, builder, sig.args[0], args[0], args[1]))
        phase = builder.and_(builder.lshr(word, I64(33)), I64(1))
        return builder.icmp_signed("!=", phase, builder.zext(args[2], I64))

    return types.boolean(mbarriers, types.int64, types.int32), codegen


wait_for_phase.waits_for = phase_has_ended  # type: ignore[attr-defined]
