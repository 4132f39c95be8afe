"""`python -m baton` is the `baton` command."""

from baton.start import main

raise SystemExit(main())
