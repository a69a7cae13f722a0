"""The market: what a task is, how plans become payments, and the trade as a whole."""
