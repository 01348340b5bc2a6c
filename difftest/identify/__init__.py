"""Which contract does an implementation follow? It is called on rows built to tell, and its outputs are held to all.

`probes`: the rows. `hypotheses`: what is asked, and which values each allows. `tally`: the elements for and against each.
`infer`: the decision, and the margin that makes a name certain. `report`, `command`: the rest.
"""
