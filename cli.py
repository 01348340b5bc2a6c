"""`python cli.py COMMAND`: the command line, which `difftest.cli` declares."""

from difftest.cli import main

if __name__ == "__main__":
    main()
