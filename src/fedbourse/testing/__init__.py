"""Databases, markets, devices and adversaries for tests, benchmarks and soak runs.

Nothing else in the package imports this, and the wheel leaves it out. It may need what only the
development set-up installs: pytest (``databases``) and a PostgreSQL server (``PostgresServer``).
"""
