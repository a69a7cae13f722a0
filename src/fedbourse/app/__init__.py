"""The served market: configuration, HTTP server, scheduler."""
