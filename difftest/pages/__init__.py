"""The generated pages: what `python cli.py docs` writes and `--check` holds README.md and docs/ to.

`docs/who-rounds-where.md` is generated as a whole. Of every other page only the blocks are, which lie between
`<!-- NAME:start -->` and `<!-- NAME:end -->`: no figure and no table that a program can know is typed by hand. What was
measured comes from the result files in benchmarks/results/, everything else from the code. A new block is a function and an
entry in `blocks.BLOCKS`.
"""
