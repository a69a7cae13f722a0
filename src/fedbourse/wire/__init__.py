"""What goes over the wire: bodies, hashes, signatures, and the connection of a client."""
