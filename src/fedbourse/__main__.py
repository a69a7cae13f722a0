"""``python -m fedbourse`` is ``fedbourse``."""

import sys

from fedbourse.cli import main

if __name__ == "__main__":
    sys.exit(main())
