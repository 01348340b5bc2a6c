"""Every implementation against every other: distances in ULP, contracts, errors against the truth.

`request`: what is called. `observe`: one implementation's calls, in a process of its own. `run`: all of them, whatever crashes.
`analyse`: from outputs to a document. `file`: a document in a file. `tables`, `plots`, `page`: a document shown.
"""
