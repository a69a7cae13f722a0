"""Privacy accounting in zero-concentrated differential privacy (zCDP)."""

from fedbourse.privacy.zcdp import noise_scale

__all__ = ["noise_scale"]
