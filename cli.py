"""`python cli.py COMMAND`: the command line, which `difftest.cli` declares."""

import sys

from difftest import errors

try:
    from difftest.cli import main
except ModuleNotFoundError as error:  # click is not there to say it
    lacking = errors.not_installed(error)
    if lacking is None:
        raise
    print(f"error: {lacking}", file=sys.stderr)
    sys.exit(lacking.status)

if __name__ == "__main__":
    main()
