"""The market for people: pages over the same questions and commands as the API."""
