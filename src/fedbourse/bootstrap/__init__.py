"""The only wiring: a whole trade in one process (``demo``), and a served market (``market``)."""
