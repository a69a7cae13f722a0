"""The protocol of market and clients: messages, signatures, and a client's connection."""
