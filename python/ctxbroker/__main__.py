# SPDX-License-Identifier: Apache-2.0
"""`python -m ctxbroker`."""

import sys

from ._programs import main

if __name__ == "__main__":
    sys.exit(main())
