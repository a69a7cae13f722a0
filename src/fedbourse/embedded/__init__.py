"""The market in one process, over a temporary database and in simulated time."""
