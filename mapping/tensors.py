"""Where tensors lie in off-chip memory."""

from __future__ import annotations

from hwspecs import Machine


def base_bytes(machine: Machine, end_bytes: int, number: int) -> int:
    """Return where tensor `number` of a Program starts, the one before ending at `end_bytes`.

    Tensors start on a row of bursts over all channels, so that none shares a burst. Where the
    machine describes its DRAM, each starts one bank after the bank in which the one before starts:
    streams that run side by side at one pace then keep to banks of their own and do not close each
    other's rows.
    """
    chip = machine.off_chip
    row = chip.interleave_bytes * chip.channels
    if chip.dram is None:
        return -(-end_bytes // row) * row
    # one row of a bank in every group and channel
    bank = max(row, chip.dram.row_bytes * chip.dram.bank_groups * chip.channels)
    all_banks = bank * chip.dram.banks
    return -(-end_bytes // all_banks) * all_banks + number % chip.dram.banks * bank
