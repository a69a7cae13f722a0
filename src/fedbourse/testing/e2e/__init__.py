"""Markets and devices as processes that are killed, and the laws that must hold after."""
