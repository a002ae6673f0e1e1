"""`python -m anchorlab`: the command line."""

from anchorlab.cli import main

raise SystemExit(main())
