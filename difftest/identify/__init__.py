"""Which contract does an implementation follow? It is called on rows built to tell, and its outputs are held to all.

`probes`: the rows. `hypotheses`: what may be believed, and which values each belief allows. `evidence`: what an output
says for and against each. `infer`: the decision, and the margin that makes a name certain. `report`, `command`: the rest.
"""
