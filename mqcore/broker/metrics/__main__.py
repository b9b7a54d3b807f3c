"""``python -m mqcore.broker.metrics [--check]``: see ``page``."""

import sys

from mqcore.broker.metrics.page import main

if __name__ == "__main__":
    sys.exit(main())
