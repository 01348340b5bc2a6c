"""In which order does a norm add its squares? The summation tree, measured from outside.

FPRev (Xie et al., arXiv 2411.00442) masks a sum with M and -M to see which terms meet before the two do. Squares have one sign:
here one huge square absorbs what is added to it alone, and what was added together first comes through. `tree`: what is found.
`gauge`: a call as a measurement. `search`: from measurements to a tree. `regular`: a tree that repeats itself, in a few levels.
`outline`: a tree as text. `fingerprint`: the whole.
"""
