"""The framework's test client, whose import warns about a name that another library renamed."""

import warnings

with warnings.catch_warnings():
    warnings.filterwarnings("ignore", "The anyio.abc.BlockingPortal alias", DeprecationWarning)
    from starlette.testclient import TestClient

__all__ = ["TestClient"]
