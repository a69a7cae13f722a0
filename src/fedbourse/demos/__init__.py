"""Examples that run by themselves: a trade, a market, a network of devices."""
