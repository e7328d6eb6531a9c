"""Cells of recurrent networks in device operators; PyTorch fuses them for other devices."""

from __future__ import annotations

from typing import Any

import torch

Tensor = torch.Tensor


def lstm_cell(
    input_gates: Tensor, hidden_gates: Tensor, cell: Tensor, input_bias: Any = None, hidden_bias: Any = None
) -> tuple[Tensor, Tensor, Tensor]:
    """aten::_thnn_fused_lstm_cell in device operators."""
    gates = input_gates + hidden_gates
    if input_bias is not None:
        gates = gates + input_bias + hidden_bias
    i, f, c, o = gates.chunk(4, 1)
    state = f.sigmoid() * cell + i.sigmoid() * c.tanh()
    return o.sigmoid() * state.tanh(), state, torch.cat([i, f, c, o], 1)


def gru_cell(
    input_gates: Tensor, hidden_gates: Tensor, hidden: Tensor, input_bias: Any = None, hidden_bias: Any = None
) -> tuple[Tensor, Tensor]:
    """aten::_thnn_fused_gru_cell in device operators."""
    if input_bias is not None:
        input_gates, hidden_gates = input_gates + input_bias, hidden_gates + hidden_bias
    input_reset, input_update, input_new = input_gates.chunk(3, 1)
    hidden_reset, hidden_update, hidden_new = hidden_gates.chunk(3, 1)
    reset = (input_reset + hidden_reset).sigmoid()
    update = (input_update + hidden_update).sigmoid()
    new = (input_new + reset * hidden_new).tanh()
    return new + update * (hidden - new), torch.cat([reset, update, new, hidden, hidden_new], 1)
